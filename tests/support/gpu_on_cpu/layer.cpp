// An OpenCL layer that presents Intel's OpenCL runtime for CPUs as an Xe-LP GPU, so that OpenVINO's GPU plugin takes it.
//
// FAKEGPU_MODE says what becomes of kernels: "null" (they are stubs, and none is launched: outputs are garbage) or "lazy"
// (a program is built when one of its kernels is first launched). FAKEGPU_OPTS is appended to the options it is built with.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_layer.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

const cl_icd_dispatch* runtime = nullptr;  // what the layer stands before
union Table {
    cl_icd_dispatch calls;
    void* slots[1024];  // newer loaders know more calls than the headers
} table;
bool launches = false;
constexpr size_t PAGE = 4096;

// The runtime forms sub-groups along dimension 0 alone, GPUs along the first that is longer than 1. Kernels of such
// launches are built with two dimensions swapped, and so is their range.
enum Swap { NONE, WITH_2, WITH_1, SWAPS };

struct Program {
    cl_context context;
    cl_device_id device = nullptr;
    std::string source, options;
    cl_program built[SWAPS] = {};
};
struct Argument {
    bool is_pointer;    // memory shared with the host, and else bytes or, without a value, local memory
    const void* value;  // the pointer
    std::string bytes;
    size_t size;
    bool has_value;
};
struct Kernel {
    cl_program program;
    std::string name;
    std::map<cl_uint, Argument> arguments;
    cl_kernel built[SWAPS] = {};
};
std::recursive_mutex mutex;
std::map<cl_program, Program> programs;
std::map<cl_kernel, Kernel> kernels;
using SetPointer = cl_int(CL_API_CALL*)(cl_kernel, cl_uint, const void*);
SetPointer set_pointer = nullptr;

std::string environment(const char* name) {
    const char* value = getenv(name);
    return value ? value : "";
}

cl_int answer(const void* value, size_t size, size_t room, void* to, size_t* written) {
    if (to && room < size) return CL_INVALID_VALUE;
    if (to) memcpy(to, value, size);
    if (written) *written = size;
    return CL_SUCCESS;
}

// ---- The device

cl_int CL_API_CALL get_device_info(cl_device_id device, cl_device_info what, size_t room, void* to, size_t* written) {
    auto number = [&](auto value) { return answer(&value, sizeof value, room, to, written); };
    auto text = [&](const char* value) { return answer(value, strlen(value) + 1, room, to, written); };
    switch (what) {
        case CL_DEVICE_TYPE: return number(cl_device_type(CL_DEVICE_TYPE_GPU));
        case CL_DEVICE_NAME: return text("Intel(R) UHD Graphics 770");
        case CL_DEVICE_VENDOR: return text("Intel(R) Corporation");
        case CL_DEVICE_VENDOR_ID: return number(cl_uint(0x8086));
        case CL_DRIVER_VERSION: return text("25.18.33578");
        case CL_DEVICE_VERSION: return text("OpenCL 3.0 NEO ");
        case CL_DEVICE_MAX_COMPUTE_UNITS: return number(cl_uint(32));
        case CL_DEVICE_MAX_CLOCK_FREQUENCY: return number(cl_uint(1500));
        case CL_DEVICE_MAX_WORK_GROUP_SIZE: return number(size_t(512));
        case CL_DEVICE_LOCAL_MEM_SIZE: return number(cl_ulong(65536));
        case CL_DEVICE_HOST_UNIFIED_MEMORY: return number(cl_bool(CL_TRUE));
        case CL_DEVICE_HALF_FP_CONFIG:
            return number(cl_device_fp_config(CL_FP_DENORM | CL_FP_INF_NAN | CL_FP_ROUND_TO_NEAREST | CL_FP_FMA));
        case CL_DEVICE_PARTITION_MAX_SUB_DEVICES: return number(cl_uint(0));
        case CL_DEVICE_SUB_GROUP_SIZES_INTEL: {
            const size_t sizes[] = {8, 16, 32};
            return answer(sizes, sizeof sizes, room, to, written);
        }
        // cl_intel_device_attribute_query, in order: IP version, ID, slices, subslices, units, threads, features (DP4A)
        case 0x4250: return number(cl_uint(0x03008000));
        case 0x4251: return number(cl_uint(0x4680));
        case 0x4252: return number(cl_uint(1));
        case 0x4253: return number(cl_uint(4));
        case 0x4254: return number(cl_uint(8));
        case 0x4255: return number(cl_uint(7));
        case 0x4256: return number(cl_uint(1));
    }
    return runtime->clGetDeviceInfo(device, what, room, to, written);
}

cl_int CL_API_CALL get_devices(cl_platform_id platform, cl_device_type type, cl_uint room, cl_device_id* to, cl_uint* count) {
    if (type == CL_DEVICE_TYPE_CPU) {
        if (count) *count = 0;
        return CL_DEVICE_NOT_FOUND;
    }
    return runtime->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, room, to, count);
}

// The plugin asks for an out-of-order queue, as it does for GPUs without matrix engines (the others get in-order queues).
// On this runtime its barriers do not order all that has to be: of 20 runs of a hybrid with slots moved 8 were wrong.
cl_command_queue CL_API_CALL create_queue(
    cl_context context, cl_device_id device, const cl_queue_properties* properties, cl_int* error) {
    std::vector<cl_queue_properties> in_order;
    for (; properties && *properties; properties += 2) {
        const bool flags = properties[0] == CL_QUEUE_PROPERTIES;
        in_order.push_back(properties[0]);
        in_order.push_back(flags ? properties[1] & ~CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : properties[1]);
    }
    in_order.push_back(0);
    return runtime->clCreateCommandQueueWithProperties(context, device, in_order.data(), error);
}

// ---- Programs: the plugin gets stubs; what it wanted is kept

std::string stubs(const std::string& source) {
    const std::string start = "kernel void ";
    std::set<std::string> names;
    std::string made;
    for (size_t at = source.find(start); at != std::string::npos; at = source.find(start, at)) {
        at = source.find_first_not_of(" \t\n", at + start.size());
        size_t end = at;
        while (end < source.size() && (isalnum(static_cast<unsigned char>(source[end])) || source[end] == '_')) ++end;
        const std::string name = source.substr(at, end - at);
        if (!name.empty() && names.insert(name).second) made += "__kernel void " + name + "(){}\n";
        at = end;
    }
    return made;
}

cl_program CL_API_CALL create_program(cl_context context, cl_uint count, const char** texts, const size_t* lengths, cl_int* error) {
    Program program{context};
    for (cl_uint i = 0; i < count; ++i)
        program.source += lengths && lengths[i] ? std::string(texts[i], lengths[i]) : std::string(texts[i]);
    const std::string made = stubs(program.source);
    const char* text = made.c_str();
    cl_program handle = runtime->clCreateProgramWithSource(context, 1, &text, nullptr, error);
    std::lock_guard<std::recursive_mutex> guard(mutex);
    if (handle) programs[handle] = program;
    return handle;
}

cl_int CL_API_CALL build_program(
    cl_program handle, cl_uint count, const cl_device_id* devices, const char* options,
    void(CL_CALLBACK* done)(cl_program, void*), void* data) {
    // Of a negative base native_powr is NaN on a CPU.
    std::string wanted = std::string(options ? options : "") + " -Dnative_powr=pow " + environment("FAKEGPU_OPTS");
    for (const std::string unknown :
         {"-cl-intel-no-prera-scheduling", "-cl-intel-256-GRF-per-thread", "-cl-intel-greater-than-4GB-buffer-required",
          "-Wno-error", "-noinline", "-cl-no-subgroup-ifp"})
        for (size_t at; (at = wanted.find(unknown)) != std::string::npos;) wanted.erase(at, unknown.size());
    {
        std::lock_guard<std::recursive_mutex> guard(mutex);
        Program& program = programs[handle];
        program.options = wanted;
        if (count && devices)
            program.device = devices[0];
        else
            runtime->clGetProgramInfo(handle, CL_PROGRAM_DEVICES, sizeof(cl_device_id), &program.device, nullptr);
    }
    return runtime->clBuildProgram(handle, count, devices, "-cl-std=CL3.0", done, data);
}

// The runtime cannot get a program back from a kernel, as the plugin wants.
cl_int CL_API_CALL release_program(cl_program) { return CL_SUCCESS; }

// ---- Kernels: arguments are kept for when they are launched

void keep_kernel(cl_program program, cl_kernel handle) {
    char name[1024] = "";
    runtime->clGetKernelInfo(handle, CL_KERNEL_FUNCTION_NAME, sizeof name, name, nullptr);
    std::lock_guard<std::recursive_mutex> guard(mutex);
    kernels[handle] = Kernel{program, name};
}

cl_kernel CL_API_CALL create_kernel(cl_program program, const char* name, cl_int* error) {
    cl_kernel handle = runtime->clCreateKernel(program, name, error);
    if (handle) keep_kernel(program, handle);
    return handle;
}

cl_int CL_API_CALL create_kernels(cl_program program, cl_uint count, cl_kernel* handles, cl_uint* made) {
    const cl_int error = runtime->clCreateKernelsInProgram(program, count, handles, made);
    for (cl_uint i = 0; !error && handles && i < count; ++i) keep_kernel(program, handles[i]);
    return error;
}

cl_int CL_API_CALL set_argument(cl_kernel handle, cl_uint place, size_t size, const void* value) {
    const std::string bytes = value ? std::string(static_cast<const char*>(value), size) : std::string();
    std::lock_guard<std::recursive_mutex> guard(mutex);
    kernels[handle].arguments[place] = Argument{false, nullptr, bytes, size, value != nullptr};
    return CL_SUCCESS;
}

cl_int CL_API_CALL set_pointer_argument(cl_kernel handle, cl_uint place, const void* value) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    kernels[handle].arguments[place] = Argument{true, value, "", 0, true};
    return CL_SUCCESS;
}

std::string swapped(const std::string& source, Swap swap) {
    if (swap == NONE) return source;
    const std::string other = swap == WITH_2 ? "2" : "1";
    std::string text = "#define SWAPPED(d) ((d)==0?" + other + ":((d)==" + other + "?0:(d)))\n";
    for (const std::string call : {"get_global_id", "get_local_id", "get_group_id", "get_local_size",
                                   "get_enqueued_local_size", "get_global_size", "get_num_groups", "get_global_offset"})
        text += "#define " + call + "(d) " + call + "(SWAPPED(d))\n";
    text += std::string("#define IN_ORDER(x,y,z) ") + (swap == WITH_2 ? "z,y,x" : "y,x,z") + "\n";
    return text + "#define reqd_work_group_size(x,y,z) reqd_work_group_size(IN_ORDER(x,y,z))\n" + source;
}

// The kernel as it was wanted, with its arguments; nullptr, with a word on stderr, where it cannot be built.
cl_kernel real_kernel(cl_kernel handle, Swap swap) {
    Kernel& kernel = kernels.at(handle);
    cl_int error = CL_SUCCESS;
    if (!kernel.built[swap]) {
        Program& program = programs.at(kernel.program);
        if (!program.built[swap]) {
            const std::string source = swapped(program.source, swap);
            const char* text = source.c_str();
            program.built[swap] = runtime->clCreateProgramWithSource(program.context, 1, &text, nullptr, &error);
            error = runtime->clBuildProgram(program.built[swap], 1, &program.device, program.options.c_str(), nullptr, nullptr);
        }
        if (!error) kernel.built[swap] = runtime->clCreateKernel(program.built[swap], kernel.name.c_str(), &error);
    }
    for (const auto& [place, argument] : kernel.arguments) {
        if (error) break;
        error = argument.is_pointer ? set_pointer(kernel.built[swap], place, argument.value)
                                    : runtime->clSetKernelArg(kernel.built[swap], place, argument.size,
                                                              argument.has_value ? argument.bytes.data() : nullptr);
    }
    if (error) fprintf(stderr, "[gpu on cpu] kernel %s: %d\n", kernel.name.c_str(), error);
    return error ? nullptr : kernel.built[swap];
}

cl_int CL_API_CALL launch(
    cl_command_queue queue, cl_kernel handle, cl_uint dimensions, const size_t* offset, const size_t* range,
    const size_t* local, cl_uint count, const cl_event* after, cl_event* event) {
    if (!launches) return event ? runtime->clEnqueueMarkerWithWaitList(queue, count, after, event) : CL_SUCCESS;
    std::lock_guard<std::recursive_mutex> guard(mutex);
    size_t ranges[3] = {1, 1, 1}, locals[3] = {1, 1, 1};
    for (cl_uint i = 0; i < dimensions; ++i) ranges[i] = range[i], locals[i] = local ? local[i] : 1;
    Swap swap = NONE;
    if (local && !offset && locals[0] == 1) swap = locals[1] > 1 ? WITH_1 : locals[2] > 1 ? WITH_2 : NONE;
    if (swap != NONE) {
        const int other = swap == WITH_1 ? 1 : 2;
        std::swap(ranges[0], ranges[other]);
        std::swap(locals[0], locals[other]);
        dimensions = 3;
    }
    cl_kernel real = real_kernel(handle, swap);
    if (!real) return CL_INVALID_KERNEL;
    return runtime->clEnqueueNDRangeKernel(
        queue, real, dimensions, offset, ranges, local ? locals : nullptr, count, after, event);
}

// The plugin frees what commands that are not done yet use. Drivers of GPUs wait; the runtime for CPUs does not.
cl_int CL_API_CALL keep_memory(cl_context, void*) { return CL_SUCCESS; }

// Linux keeps 65530 areas of memory apart (vm.max_map_count), and each guarded piece makes two.
constexpr size_t MOST_GUARDED = 20000;
std::atomic<size_t> guarded{0};

// A page behind pieces of memory stops kernels that leave them; otherwise they now and then change what lies there.
template <cl_uint kind, class... Device>
struct Allocator {
    using Call = void*(CL_API_CALL*)(cl_context, Device..., const cl_mem_properties_intel*, size_t, cl_uint, cl_int*);
    static inline Call given = nullptr;

    static void* CL_API_CALL allocate(
        cl_context context, Device... device, const cl_mem_properties_intel* properties, size_t size, cl_uint, cl_int* error) {
        const size_t kept = (size + PAGE - 1) / PAGE * PAGE;
        if (guarded++ >= MOST_GUARDED) return given(context, device..., properties, kept, PAGE, error);
        void* memory = given(context, device..., properties, kept + PAGE, PAGE, error);
        if (memory && mprotect(static_cast<char*>(memory) + kept, PAGE, PROT_NONE)) {
            perror("[gpu on cpu] mprotect");
            abort();
        }
        return memory;
    }

    static void* before(void* found) {
        given = reinterpret_cast<Call>(found);
        return reinterpret_cast<void*>(&allocate);
    }
};

void* CL_API_CALL extension(cl_platform_id platform, const char* name) {
    void* found = runtime->clGetExtensionFunctionAddressForPlatform(platform, name);
    if (found && !strcmp(name, "clHostMemAllocINTEL")) return Allocator<0>::before(found);
    if (found && !strcmp(name, "clDeviceMemAllocINTEL")) return Allocator<1, cl_device_id>::before(found);
    if (found && !strcmp(name, "clSharedMemAllocINTEL")) return Allocator<2, cl_device_id>::before(found);
    if (found && !strcmp(name, "clMemFreeINTEL")) return reinterpret_cast<void*>(&keep_memory);
    if (!found || strcmp(name, "clSetKernelArgMemPointerINTEL")) return found;
    set_pointer = reinterpret_cast<SetPointer>(found);
    return reinterpret_cast<void*>(&set_pointer_argument);
}

}  // namespace

extern "C" {

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t room, void* to, size_t* written) {
    const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    if (what == CL_LAYER_API_VERSION) return answer(&version, sizeof version, room, to, written);
    if (what == CL_LAYER_NAME) return answer("gpu on cpu", sizeof "gpu on cpu", room, to, written);
    return CL_INVALID_VALUE;
}

CL_API_ENTRY cl_int CL_API_CALL
clInitLayer(cl_uint count, const cl_icd_dispatch* target, cl_uint* made, const cl_icd_dispatch** layer) {
    runtime = target;
    launches = environment("FAKEGPU_MODE") == "lazy";
    const cl_uint known = count < 1024 ? count : 1024;
    memcpy(table.slots, target, known * sizeof(void*));
    table.calls.clGetDeviceInfo = get_device_info;
    table.calls.clGetDeviceIDs = get_devices;
    table.calls.clCreateCommandQueueWithProperties = create_queue;
    table.calls.clCreateProgramWithSource = create_program;
    table.calls.clBuildProgram = build_program;
    table.calls.clReleaseProgram = release_program;
    table.calls.clCreateKernel = create_kernel;
    table.calls.clCreateKernelsInProgram = create_kernels;
    table.calls.clSetKernelArg = set_argument;
    table.calls.clEnqueueNDRangeKernel = launch;
    table.calls.clGetExtensionFunctionAddressForPlatform = extension;
    *layer = &table.calls;
    *made = known;
    return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayerWithProperties(
    cl_uint count, const cl_icd_dispatch* target, cl_uint* made, const cl_icd_dispatch** layer, const void*) {
    return clInitLayer(count, target, made, layer);
}

CL_API_ENTRY cl_int CL_API_CALL clDeinitLayer(void) { return CL_SUCCESS; }
}
