for (const lane of document.querySelectorAll("[data-cache]")) {
  lane.addEventListener("click", () => {
    for (const open of document.querySelectorAll("details.chosen")) open.classList.remove("chosen");
    const evidence = document.getElementById("cache-" + lane.dataset.cache);
    for (let part = evidence; part; part = part.parentElement.closest("details")) part.open = true;
    evidence.classList.add("chosen");
    evidence.scrollIntoView({ block: "center" });
  });
}
