"""openvino.genai's paged attention."""
