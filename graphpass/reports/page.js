/** Draw a table of changes when its section is opened. */
function table(root) {
  const rows = JSON.parse(root.querySelector("script").textContent);
  const facts = (facets) => Object.entries(facets ?? {}).map(([name, value]) => make("div", {}, `${name}: ${value}`));
  const fill = () => root.append(make("table", {}, make("tr", {}, ...["", "name", "before", "after"].map((word) => make("th", {}, word))),
    ...rows.map(([name, before, after]) => make("tr", {}, make("td", {}, before === null ? "+" : after === null ? SIGNS.removed : "~"),
      make("td", {}, name), make("td", {}, ...facts(before)), make("td", {}, ...facts(after))))));
  whenOpen(root, fill);
}

function whenOpen(element, action) {
  const holder = element.closest("details");
  if (!holder || holder.open) action();
  else holder.addEventListener("toggle", action, { once: true });
}

for (const root of document.querySelectorAll(".changes")) table(root);
for (const root of document.querySelectorAll(".picture")) whenOpen(root, () => new Picture(root));

for (const lane of document.querySelectorAll("[data-cache]")) {
  lane.addEventListener("click", () => {
    for (const open of document.querySelectorAll("details.chosen")) open.classList.remove("chosen");
    const evidence = document.getElementById("cache-" + lane.dataset.cache);
    for (let part = evidence; part; part = part.parentElement.closest("details")) part.open = true;
    evidence.classList.add("chosen");
    evidence.scrollIntoView({ block: "center" });
  });
}

for (const link of document.querySelectorAll('a[href^="#"]')) {
  link.addEventListener("click", () => { document.getElementById(link.hash.slice(1)).open = true; });
}

/** Show the cells whose name and state contain all words in the field. */
function filter(field) {
  const cells = [...document.querySelectorAll("[data-cell]")];
  const rows = [...document.querySelectorAll(".matrix tr:not(.head-row)")];
  const sections = cells.filter((one) => one.matches("details"));
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const one of cells) one.hidden = !words.every((word) => one.dataset.cell.includes(word));
    for (const row of rows) row.hidden = !row.querySelector("a:not([hidden])");
    for (const entry of document.querySelectorAll(".matrix td[data-label]")) entry.classList.toggle("left-out", entry.firstChild.hidden);
    const shown = sections.filter((one) => !one.hidden).length;
    field.parentElement.querySelector(".found").textContent = field.value ? `${shown} of ${sections.length}` : "";
  });
}

for (const field of document.querySelectorAll(".filter input")) filter(field);

const theme = document.querySelector(".theme");
theme.addEventListener("click", () => {
  const dark = getComputedStyle(document.body).backgroundColor !== "rgb(255, 255, 255)";
  document.documentElement.style.colorScheme = dark ? "light" : "dark";
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.matches("input, select")) return;
  const search = [...document.querySelectorAll("input[type=search]")].find((one) => one.offsetParent);
  if (search) { event.preventDefault(); search.focus(); search.select(); }
});
