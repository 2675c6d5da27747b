"use strict";

const SIGNS = { removed: "\u2212", added: "+", changed: "~", renamed: "\u2192" };
const LANE = 9, HALF = 12, LANES = 14, SHOWN = 100;

/** Create an element; strings become text, not markup. */
function make(tag, attributes, ...parts) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...parts.filter((part) => part !== null));
  return made;
}

/** Assign lanes to the values of one side, as in graphs of commits. */
function lanes(nodes) {
  const left = nodes.map(() => 0), columns = [], held = [], drawn = [];
  for (const node of nodes) for (const read of new Set(node[4])) if (read >= 0) left[read]++;
  nodes.forEach((node, index) => {
    const reads = [...new Set(node[4])].filter((read) => read >= 0 && columns[read] !== undefined);
    const before = held.slice();
    const ending = reads.filter((read) => --left[read] === 0);
    for (const read of ending) held[columns[read]] = undefined;
    let column = ending.length ? Math.min(...ending.map((read) => columns[read])) : held.indexOf(undefined);
    if (column < 0) column = held.length;
    columns[index] = column;
    let path = "";
    before.forEach((value, lane) => {
      if (value === undefined || lane >= LANES) return;
      const x = at(lane), to = at(column);
      if (reads.includes(value)) path += `M${x} 0C${x} 7 ${to} 5 ${to} ${HALF}`;
      if (!ending.includes(value)) path += `M${x} 0V${2 * HALF}`;
    });
    if (left[index]) {
      held[column] = index;
      path += `M${at(column)} ${HALF}V${2 * HALF}`;
    }
    drawn.push([path, at(column), held.flatMap((value, lane) => (value === undefined || lane >= LANES ? [] : [lane]))]);
  });
  const width = Math.min(Math.max(1, ...columns.map((column) => column + 1)), LANES) * LANE + 6;
  return { width, drawn };
}

function picture(width, path, more = "") {
  return `<svg width="${width}" aria-hidden="true"><path d="${path}"/>${more}</svg>`;
}

function at(lane) {
  return Math.min(lane, LANES) * LANE + LANE / 2;
}

/** A picture of one model, or of two models side by side. */
class Picture {
  constructor(root) {
    const data = JSON.parse(root.querySelector("script").textContent);
    this.titles = data.titles;
    this.two = data.titles.length > 1;
    this.only = this.two;
    this.hits = [];
    this.hit = -1;
    this.root = root;
    root.style.setProperty("--sides", data.titles.length);
    this.entries = data.groups.map((group, number) => ({ group, number, picks: range(group.sides), at: 0, open: false }));
    this.list = make("div", {});
    root.append(this.tools(), this.keys(), this.strip(), this.list);
    const folds = Math.max(...this.entries.map((entry) => entry.group.layers.length));
    const first = this.entries.find((entry) => entry.group.layers.length === folds);
    if (first) first.open = true;
    this.draw();
    root.addEventListener("keydown", (event) => this.key(event));
  }

  tools() {
    this.query = make("input", {
      type: "search", placeholder: "Search operators, names, weights, attributes  ( / )", "aria-label": "Search",
      role: "combobox", "aria-expanded": "false", oninput: () => this.search(),
      onkeydown: (event) => this.searching(event), onfocus: () => this.offer(), onblur: () => this.conceal(),
    });
    this.found = make("span", { class: "found", role: "status" });
    this.offers = make("ul", { class: "hits", role: "listbox", hidden: true, onmousedown: (event) => {
      event.preventDefault();
      const chosen = event.target.closest("li");
      if (chosen) { this.go(Number(chosen.dataset.hit)); this.conceal(); }
    } });
    const box = make("input", { type: "checkbox", checked: this.only, onchange: () => {
      this.only = box.checked;
      this.draw();
    } });
    return make("div", { class: "tools" }, this.query, this.found,
      this.two ? make("label", {}, box, " only changes") : null,
      make("button", { onclick: () => this.all(true) }, "open all"),
      make("button", { onclick: () => this.all(false) }, "close all"), this.offers);
  }

  keys() {
    const told = [["/", "search"], ["\u2191 \u2193", "operators"]];
    if (this.two) told.push(["\u2190 \u2192", "sides"], ["n p", "next and previous change"]);
    told.push(["Enter", "details"]);
    return make("p", { class: "keys" }, ...told.flatMap(([key, words]) => [make("kbd", {}, key), ` ${words}   `]));
  }

  strip() {
    const cells = [];
    for (const { group, number } of this.entries) for (const layer of group.layers) cells[layer] = number;
    const alike = Math.max(...this.entries.map((entry) => entry.group.layers.length));
    const made = make("div", { class: "strip", role: "group", "aria-label": "layers", hidden: alike < 1 });
    const apart = [1, 2, 5, 10].find((step) => cells.length <= 12 * step) ?? 20;
    cells.forEach((number, layer) => {
      const { group } = this.entries[number];
      made.append(make("button", {
        style: `--shade: ${shade(number)}`, title: `layer ${layer}: ${group.title}`, "aria-label": `layer ${layer}`,
        onclick: () => this.show(group, group.layers.indexOf(layer)), tabindex: layer ? -1 : 0, "data-layer": layer,
      }, layer % apart ? null : make("small", {}, layer)));
    });
    made.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const next = step && made.children[Number(event.target.dataset.layer) + step];
      if (next) { next.focus(); event.stopPropagation(); }
    });
    return made;
  }

  draw() {
    this.list.replaceChildren(...this.entries.map((entry) => this.section(entry)));
    this.point();
  }

  point() {
    const current = new Set(this.entries.filter((entry) => entry.open).map((entry) => this.layer(entry)));
    for (const cell of this.root.querySelectorAll(".strip button"))
      cell.setAttribute("aria-current", current.has(Number(cell.dataset.layer)));
  }

  layer(entry) {
    return entry.group.layers[entry.picks[entry.at]];
  }

  section(entry) {
    const { group } = entry;
    entry.body = make("div", { hidden: !entry.open });
    entry.head = make("button", { class: "head", "aria-expanded": String(entry.open), onclick: () => this.toggle(entry) },
      make("b", {}, entry.title ?? group.title),
      entry.picks.length > 1 ? make("span", {}, `${entry.picks.length} alike`) : null,
      make("span", { class: "count" }, `${group.sides.map((side) => side.nodes.length).join(" \u2192 ")} operators`),
      ...[["removed", "minus"], ["added", "plus"], ["changed", "tilde"]].map(([status, name]) => group.changes[status]
        ? make("span", { class: name }, `${SIGNS[status]}${group.changes[status]} ${status}`) : null));
    if (entry.open) this.fill(entry);
    const shown = group.layers.length ? `--shade: ${shade(entry.number)}` : "";
    entry.element = make("section", { class: "group", style: shown }, entry.head, entry.body);
    return entry.element;
  }

  toggle(entry, open = !entry.open) {
    entry.open = open;
    entry.head.setAttribute("aria-expanded", open);
    entry.body.hidden = !open;
    if (open) this.fill(entry);
    else entry.body.replaceChildren();
    this.point();
  }

  all(open) {
    for (const entry of this.entries) if (entry.open !== open) this.toggle(entry, open);
  }

  bar(entry) {
    const { group } = entry;
    const small = group.sides.every((side) => side.nodes.length <= DRAWN);
    const view = small ? make("button", { "aria-pressed": String(Boolean(entry.graphed)), onclick: () => this.graph(entry) }, "graph") : null;
    if (group.layers.length < 2) return view && make("div", { class: "bar" }, view);
    const pick = make("select", { "aria-label": "layer", onchange: () => {
      entry.at = Number(pick.value);
      this.fill(entry);
      entry.body.querySelector("select").focus();
    } }, ...entry.picks.map((layer, place) =>
      make("option", { value: place, selected: place === entry.at }, `layer ${group.layers[layer]}`)));
    const apart = entry.picks.length === 1;
    return make("div", { class: "bar" }, apart ? null : make("label", {}, "names of ", pick),
      make("button", { onclick: () => this.refold(entry, !apart) }, apart ? "fold layers" : `unfold ${entry.picks.length} layers`), view);
  }

  /** Switch a group between a graph and a list of operators. */
  graph(entry) {
    entry.graphed = !entry.graphed;
    this.fill(entry);
    entry.body.querySelector("[aria-pressed]").focus();
  }

  graphs(entry) {
    const title = entry.title ?? entry.group.title;
    return make("div", { class: "graphs" }, ...entry.group.sides.flatMap((side, number) => side.nodes.length
      ? [new Graph(`${this.titles[number]}: ${title}`, side.nodes, side.names[entry.picks[entry.at]]).element] : []));
  }

  /** Replace a folded entry by an entry for each layer, or fold them again. */
  refold(entry, unfold) {
    const { group, number } = entry;
    const place = this.entries.findIndex((one) => one.group === group);
    const count = this.entries.filter((one) => one.group === group).length;
    const picks = range(group.sides);
    const made = unfold
      ? picks.map((layer) => ({ group, number, picks: [layer], at: 0, open: layer === entry.at, title: `layer ${group.layers[layer]}` }))
      : [{ group, number, picks, at: entry.picks[0], open: true }];
    this.entries.splice(place, count, ...made);
    this.draw();
    (made.find((one) => one.open) ?? made[0]).head.focus();
  }

  /** Draw the operators of a group. */
  fill(entry) {
    const { group } = entry;
    const drawings = group.drawings ??= group.sides.map((side) => lanes(side.nodes));
    entry.cells = group.sides.map(() => []);
    entry.reached = false;
    entry.rows = [];
    const parts = [this.bar(entry)];
    if (entry.graphed) {
      entry.body.replaceChildren(...parts, this.graphs(entry));
      return;
    }
    if (this.two) parts.push(make("div", { class: "titles" }, ...this.titles.map((title) => make("span", { title }, title))));
    let run = [];
    const close = () => {
      if (run.length > 2 && !entry.whole) {
        const held = run;
        parts.push(make("button", { class: "run", onclick: (event) => event.target.replaceWith(...held.map((row) => this.row(entry, row, drawings))) },
          `${held.length} unchanged`));
      } else parts.push(...run.map((row) => this.row(entry, row, drawings)));
      run = [];
    };
    group.rows.forEach((row, number) => {
      const calm = row.every((place, side) => place !== null && group.sides[side].nodes[place][1] === "same");
      if (this.only && calm) return run.push([row, number]);
      close();
      return parts.push(this.row(entry, [row, number], drawings));
    });
    close();
    entry.body.replaceChildren(...parts.filter((part) => part !== null));
  }

  /** Return an empty cell beside an operator of the other side, with the lanes that pass it. */
  free(entry, side, number, drawing) {
    let above = null;
    for (let place = number - 1; place >= 0 && above === null; place--) above = entry.group.rows[place][side];
    const made = make("span", { class: "none" });
    const passing = above === null ? [] : drawing.drawn[above][2];
    made.innerHTML = picture(drawing.width, passing.map((lane) => `M${at(lane)} 0V${2 * HALF}`).join(""));
    return made;
  }

  row(entry, [row, number], drawings) {
    const both = row.every((place, side) => place !== null && entry.group.sides[side].nodes[place][1] === "same");
    const made = make("div", { class: both && this.two ? "row both" : "row" }, ...row.map((place, side) =>
      place === null ? this.free(entry, side, number, drawings[side]) : this.cell(entry, side, place, drawings[side], row[1 - side] == null)));
    entry.rows[number] = made;
    return made;
  }

  cell(entry, side, place, drawing, alone) {
    const [op, status, result] = entry.group.sides[side].nodes[place];
    const name = this.name(entry, side, place);
    const elsewhere = this.two && alone && status === "same";
    const [path, x] = drawing.drawn[place];
    const made = make("button", {
      class: `cell ${status}`, tabindex: -1, "data-side": side, "data-place": place,
      title: `${op} ${name}\n${result}${elsewhere ? "\nThe other model has it in another place." : ""}`,
      "aria-label": `${this.two ? `${this.titles[side]}: ` : ""}${status === "same" ? "" : `${status} `}${op} ${name}`,
      onclick: () => this.about(entry, made), onfocus: () => this.near(entry, side, place),
    });
    made.innerHTML = picture(drawing.width, path, `<circle cx="${x}" cy="${HALF}" r="3"/>`);
    made.append(make("span", { class: "mark" }, elsewhere ? "\u2195" : SIGNS[status] ?? ""), make("span", { class: "op" }, op),
      make("bdi", { class: "name" }, make("bdo", { dir: "ltr" }, name)), make("span", { class: "result" }, result));
    if (!entry.reached) made.tabIndex = 0;
    entry.reached = true;
    entry.cells[side][place] = made;
    return made;
  }

  name(entry, side, place) {
    return entry.group.sides[side].names[entry.picks[entry.at]][place];
  }

  /** Highlight the producers and users of an operator. */
  near(entry, side, place) {
    for (const cell of this.list.querySelectorAll(".near")) cell.classList.remove("near");
    for (const cell of entry.body.querySelectorAll(".cell[tabindex='0']")) cell.tabIndex = -1;
    const { nodes } = entry.group.sides[side];
    entry.cells[side][place].tabIndex = 0;
    for (const read of nodes[place][4]) if (read >= 0) entry.cells[side][read]?.classList.add("near");
    nodes.forEach((node, user) => { if (node[4].includes(place)) entry.cells[side][user]?.classList.add("near"); });
  }

  /** Show or hide the details of an operator. */
  about(entry, cell) {
    const row = cell.closest(".row"), open = row.nextElementSibling;
    const same = open?.classList.contains("about");
    if (same) open.remove();
    if (same && open.dataset.of === cell.dataset.side) return;
    const side = Number(cell.dataset.side), place = Number(cell.dataset.place);
    const shown = make("div", { class: "about", "data-of": side });
    const { nodes, weights } = entry.group.sides[side];
    const [op, status, result, attributes, reads, facets] = nodes[place];
    const link = (target) => make("button", { onclick: () => this.focus(entry, side, target) },
      `${nodes[target][0]} ${this.name(entry, side, target)}`);
    const source = (read) => {
      if (typeof read === "string") return read;
      if (read >= 0) return link(read);
      return `${weights[-1 - read]} ${this.name(entry, side, nodes.length - 1 - read)}`;
    };
    const users = nodes.flatMap((node, user) => (node[4].includes(place) ? [user] : []));
    const lists = [
      ["attributes", Object.entries(attributes).map(([name, value]) => `${name}: ${value}`)],
      ["reads", reads.map(source)], ["read by", users.map(link)],
      [side ? "changed to" : "changed from", Object.entries(facets).map(([name, value]) => `${name}: ${value}`)],
    ];
    shown.append(make("b", {}, op), ` ${this.name(entry, side, place)}`, status === "same" ? "" : ` (${status})`,
      make("div", {}, result || "no result"));
    for (const [title, items] of lists)
      if (items.length) shown.append(make("div", {}, title), make("ul", {}, ...items.map((item) => make("li", {}, item))));
    row.after(shown);
  }

  /** Open the groups around an operator, and focus it. */
  focus(entry, side, place, keep = false) {
    if (entry.graphed) this.graph(entry);
    if (!entry.cells[side][place]) {
      entry.whole = true;
      this.fill(entry);
    }
    const cell = entry.cells[side][place];
    cell.scrollIntoView({ block: "center" });
    if (!keep) cell.focus({ preventScroll: true });
    return cell;
  }

  show(group, layer) {
    const entry = this.entries.find((one) => one.group === group && one.picks.includes(layer));
    entry.at = entry.picks.indexOf(layer);
    this.toggle(entry, true);
    entry.head.scrollIntoView({ block: "nearest" });
    return entry;
  }

  search() {
    const words = this.query.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.hits = [];
    this.hit = -1;
    if (words.length) for (const { group, side, place, text, names } of this.index()) {
      const open = words.filter((word) => !text.includes(word));
      const layers = [...names.keys()].filter((layer) => open.every((word) => names[layer].includes(word)));
      if (layers.length) this.hits.push({ group, side, place, layers });
    }
    this.unmark();
    this.count();
    this.offer();
  }

  index() {
    this.indexed ??= this.entries.map((entry) => entry.group).filter((group, place, all) => all.indexOf(group) === place)
      .flatMap((group) => group.sides.flatMap((one, side) => one.nodes.map(([op, status, result, attributes, reads], place) => ({
        group, side, place,
        text: [op, status === "same" ? "" : status, result, ...Object.entries(attributes).flat()].join(" ").toLowerCase(),
        names: one.names.map((names) => [place, ...reads.filter((read) => read < 0).map((read) => one.nodes.length - 1 - read)]
          .map((known) => names[known]).join(" ").toLowerCase()),
      }))));
    return this.indexed;
  }

  count() {
    const total = this.hits.reduce((sum, hit) => sum + hit.layers.length, 0), places = this.hits.length;
    const all = total > places ? `${places} (${total} operators)` : places;
    this.found.textContent = !this.query.value.trim() ? "" : this.hit < 0 ? `${all} found` : `${this.hit + 1} of ${all}`;
  }

  offer() {
    const start = Math.max(0, this.hit - SHOWN / 2);
    const words = ({ group, side, place, layers }) => {
      const one = group.layers.length ? `layer ${group.layers[layers[0]]}` : group.title;
      const where = layers.length > 1 ? `${one} and ${layers.length - 1} alike` : one;
      return `${this.two ? `${side ? "after" : "before"}, ` : ""}${where}: ${group.sides[side].nodes[place][0]} ${group.sides[side].names[layers[0]][place]}`;
    };
    this.offers.replaceChildren(...this.hits.slice(start, start + SHOWN).map((hit, place) => make("li",
      { role: "option", "data-hit": start + place, "aria-selected": start + place === this.hit }, words(hit))));
    this.offers.hidden = !this.hits.length;
    this.query.setAttribute("aria-expanded", this.hits.length > 0);
    this.offers.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }

  conceal() {
    this.offers.hidden = true;
    this.query.setAttribute("aria-expanded", "false");
  }

  searching(event) {
    const step = { Enter: event.shiftKey ? -1 : 1, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && this.hits.length) {
      const from = this.hit < 0 && step < 0 ? 0 : this.hit;
      this.go((from + step + this.hits.length) % this.hits.length);
      if (event.key === "Enter") this.conceal();
      else this.offer();
    } else if (event.key === "Escape") {
      this.conceal();
      if (this.hit >= 0) this.list.querySelector(".found-here")?.focus();
      else this.query.value = "";
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  go(number) {
    this.hit = number;
    const { group, side, place, layers } = this.hits[number];
    this.unmark();
    this.focus(this.show(group, layers[0]), side, place, true).classList.add("found-here");
    this.count();
  }

  unmark() {
    for (const cell of this.list.querySelectorAll(".found-here")) cell.classList.remove("found-here");
  }

  key(event) {
    const cell = event.target.closest(".cell");
    if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
    const entry = this.entries.find((one) => one.element.contains(cell));
    const side = cell.dataset.side;
    const cells = [...entry.body.querySelectorAll(`.cell[data-side="${side}"]`)].filter((one) => one.offsetParent);
    const place = cells.indexOf(cell);
    const turn = (one) => one && !["same", "renamed"].some((status) => one.classList.contains(status));
    const next = {
      ArrowDown: () => cells[place + 1], j: () => cells[place + 1],
      ArrowUp: () => cells[place - 1], k: () => cells[place - 1],
      Home: () => cells[0], End: () => cells.at(-1),
      ArrowLeft: () => this.across(entry, cell, 0), ArrowRight: () => this.across(entry, cell, 1),
      n: () => cells.slice(place + 1).find(turn), p: () => cells.slice(0, place).findLast(turn),
    }[event.key];
    if (!next) return;
    event.preventDefault();
    const target = next();
    target?.focus();
    target?.scrollIntoView({ block: "nearest" });
  }

  /** Return the nearest operator of the other side. */
  across(entry, cell, side) {
    if (!this.two || Number(cell.dataset.side) === side) return null;
    const rows = [...entry.body.querySelectorAll(".row")];
    const from = rows.indexOf(cell.closest(".row"));
    const wanted = (row) => row?.querySelector(`[data-side="${side}"]`);
    for (let far = 0; far < rows.length; far++) {
      const found = wanted(rows[from - far]) ?? wanted(rows[from + far]);
      if (found) return found;
    }
    return null;
  }
}

function range(sides) {
  return [...sides.find((side) => side.names.length).names.keys()];
}

function shade(number) {
  return `hsl(${(number * 137 + 190) % 360} 45% 55%)`;
}
