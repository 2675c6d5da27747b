"use strict";

const BOX = { width: 200, height: 34, across: 22, down: 30 }, DRAWN = 300, LETTERS = 26, SEEN = { width: 700, height: 560 };

/** Scale of exported images: twice the size on screen, within the limits of mobile browsers. */
const PIXELS = { scale: 2, side: 8192, area: 1 << 24 };

/** The namespace of SVG, read from the parser: the page has no URLs, which shows that it loads no files. */
const SPACE = new DOMParser().parseFromString("<svg></svg>", "text/html").body.firstChild.namespaceURI;

/** Create an SVG element; strings become text, not markup. */
function drawn(tag, attributes, ...parts) {
  const made = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...parts);
  return made;
}

/** Assign nodes to ranks below their producers, near their mean column; nodes without producers go above their users. */
function placed(nodes) {
  const ranks = [], places = [];
  nodes.forEach((node, index) => {
    const reads = [...new Set(node[4])].filter((read) => read >= 0 && read < index);
    places.push({ rank: Math.max(-1, ...reads.map((read) => places[read].rank)) + 1, reads, user: Infinity });
    for (const read of reads) places[read].user = Math.min(places[read].user, places[index].rank);
  });
  places.forEach((place, index) => {
    if (!place.reads.length && place.user < Infinity) place.rank = place.user - 1;
    (ranks[place.rank] ??= []).push(index);
  });
  for (const rank of ranks) {
    const wish = (index) => {
      const { reads } = places[index];
      return reads.length ? reads.reduce((sum, read) => sum + places[read].x, 0) / reads.length : 0;
    };
    rank.sort((one, other) => wish(one) - wish(other) || one - other);
    const step = BOX.width + BOX.across;
    rank.forEach((index, place) => {
      places[index].x = (place - (rank.length - 1) / 2) * step;
      places[index].y = places[index].rank * (BOX.height + BOX.down);
    });
  }
  return places;
}

/** The operators of one side as boxes, with values as lines between them. */
class Graph {
  constructor(title, nodes, names) {
    const places = placed(nodes);
    const left = Math.min(...places.map(({ x }) => x)) - BOX.width, top = -BOX.height;
    const right = Math.max(...places.map(({ x }) => x)) + BOX.width, bottom = Math.max(...places.map(({ y }) => y)) + 2 * BOX.height;
    this.whole = [left, top, right - left, bottom - top];
    const lines = places.flatMap(({ x, y, rank, reads }) => reads.map((read) => {
      const from = places[read], start = from.y + BOX.height, bend = Math.max(20, (y - start) / 2);
      const aside = x === from.x && rank > from.rank + 1 ? 0.8 * BOX.width : 0; // past boxes of the same column
      return drawn("path", { d: `M${from.x} ${start}C${from.x + aside} ${start + bend} ${x + aside} ${y - bend} ${x} ${y}` });
    }));
    const boxes = nodes.map(([op, status, result], index) => {
      const { x, y } = places[index];
      const short = names[index].length > LETTERS ? `\u2026${names[index].slice(1 - LETTERS)}` : names[index];
      return drawn("g", { class: status, transform: `translate(${x - BOX.width / 2} ${y})` },
        drawn("title", {}, `${op} ${names[index]}\n${result}`), drawn("rect", { width: BOX.width, height: BOX.height, rx: 5 }),
        drawn("text", { x: 8, y: 14, class: "op" }, `${SIGNS[status] ?? ""} ${op}`.trim()), drawn("text", { x: 8, y: 28 }, short));
    });
    this.svg = drawn("svg", { class: "graph", tabindex: 0, role: "img", preserveAspectRatio: "xMidYMin", "aria-label": `graph of ${title}` }, ...lines, ...boxes);
    const width = Math.min(SEEN.width, this.whole[2]);
    this.look([-width / 2, top, width, Math.min(SEEN.height, this.whole[3])]);
    this.follow();
    this.element = make("figure", {}, make("figcaption", { class: "bar" }, title,
      make("button", { "aria-label": "zoom in", onclick: () => this.zoom(0.7) }, "+"),
      make("button", { "aria-label": "zoom out", onclick: () => this.zoom(1 / 0.7) }, "\u2212"),
      make("button", { onclick: () => this.fit() }, "fit"),
      make("button", { onclick: () => save(this.file(), title, "svg") }, "save as SVG"),
      make("button", { onclick: () => this.paint((file) => save(file, title, "png")) }, "save as PNG")), this.svg);
  }

  look(box) {
    this.box = box;
    this.svg.setAttribute("viewBox", box.join(" "));
  }

  fit() {
    this.look(this.whole);
  }

  /** Scale around a point, in fractions of width and height. */
  zoom(factor, across = 0.5, down = 0.5) {
    const [x, y, width, height] = this.box;
    this.look([x + width * across * (1 - factor), y + height * down * (1 - factor), width * factor, height * factor]);
  }

  move(across, down) {
    const [x, y, width, height] = this.box;
    const scale = Math.max(width / this.svg.clientWidth, height / this.svg.clientHeight);
    this.look([x - across * scale, y - down * scale, width, height]);
  }

  /** Zoom by Ctrl and wheel, two fingers, or keys; move by dragging or arrow keys. */
  follow() {
    const fingers = new Map();
    const around = (factor, x, y) => {
      const { left, top, width, height } = this.svg.getBoundingClientRect();
      this.zoom(factor, (x - left) / width, (y - top) / height);
    };
    this.svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      around(event.deltaY > 0 ? 1.2 : 1 / 1.2, event.clientX, event.clientY);
    }, { passive: false });
    this.svg.addEventListener("pointerdown", (event) => {
      this.svg.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, event);
    });
    this.svg.addEventListener("lostpointercapture", (event) => fingers.delete(event.pointerId));
    this.svg.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      const [other] = [...fingers.values()].filter((finger) => finger.pointerId !== event.pointerId);
      const far = (finger) => Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
      if (other) around(far(before) / Math.max(1, far(event)), other.clientX, other.clientY);
      else this.move(event.clientX - before.clientX, event.clientY - before.clientY);
      fingers.set(event.pointerId, event);
    });
    this.svg.addEventListener("keydown", (event) => {
      const act = {
        "+": () => this.zoom(0.7), "-": () => this.zoom(1 / 0.7), 0: () => this.fit(),
        ArrowLeft: () => this.move(60, 0), ArrowRight: () => this.move(-60, 0),
        ArrowUp: () => this.move(0, 60), ArrowDown: () => this.move(0, -60),
      }[event.key];
      if (act) { event.preventDefault(); event.stopPropagation(); act(); }
    });
  }

  /** Return the graph as an SVG file with inlined colors, since the file has no access to the page's style. */
  file() {
    const copy = this.svg.cloneNode(true);
    const [x, y, width, height] = this.whole;
    for (const [name, value] of Object.entries({ viewBox: this.whole.join(" "), width, height })) copy.setAttribute(name, value);
    const kinds = "path, rect, text", originals = this.svg.querySelectorAll(kinds);
    copy.querySelectorAll(kinds).forEach((part, index) => {
      const style = getComputedStyle(originals[index]);
      for (const name of ["fill", "stroke", "font-family", "font-size", "font-weight"]) part.setAttribute(name, style.getPropertyValue(name));
    });
    const ground = getComputedStyle(document.body).backgroundColor;
    copy.prepend(drawn("rect", { x, y, width, height, fill: ground }));
    return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
  }

  /** Convert the SVG file to an image. */
  async paint(done) {
    const [, , width, height] = this.whole;
    const scale = Math.min(PIXELS.scale, PIXELS.side / Math.max(width, height), Math.sqrt(PIXELS.area / (width * height)));
    const address = URL.createObjectURL(this.file());
    const image = make("img", { src: address }), canvas = make("canvas", { width: Math.floor(width * scale), height: Math.floor(height * scale) });
    await image.decode();
    URL.revokeObjectURL(address);
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(done);
  }
}

function save(file, title, ending) {
  const address = URL.createObjectURL(file);
  make("a", { href: address, download: `${title.replace(/[^\w.-]+/g, "-").replace(/^-+/, "")}.${ending}` }).click();
  URL.revokeObjectURL(address);
}
