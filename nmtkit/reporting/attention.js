"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const rows = { encoder: data.src, decoder: data.tgt_in, cross: data.tgt_out };
const columns = { encoder: data.src, decoder: data.tgt_in, cross: data.src };
const MIN_WEIGHT = 0.02; // of a line that is drawn
const STEP = 28; // height of a word in the drawing

const form = document.querySelector("form");
const queries = document.getElementById("queries");
const keys = document.getElementById("keys");
const links = document.getElementById("links");
const heat = document.getElementById("heat");
const said = document.getElementById("said");

let pinned = null; // number of the word whose lines are kept
let pointed = null; // number of the word that is pointed at or has the focus

const kind = () => form.elements.kind.value;
const layer = () => Number(form.elements.layer.value);
const boxes = [...form.querySelectorAll("input[name=head]")];
const heads = () => boxes.filter((box) => box.checked).map((box) => Number(box.value));
const hue = (head) => 25 + Math.round((360 * head) / boxes.length);
const weights = (head) => data.weights[kind()][layer()][head];
const word = () => pinned ?? pointed;

function element(name, attributes, parent) {
  const isDrawing = ["line", "g"].includes(name);
  const made = isDrawing ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.append(made);
  return made;
}

function writeWords() {
  queries.replaceChildren();
  keys.replaceChildren();
  rows[kind()].forEach((text, number) => {
    const item = element("li", { tabindex: number ? -1 : 0, role: "button", dir: "auto" }, queries);
    item.textContent = text;
  });
  for (const text of columns[kind()]) element("li", { dir: "auto" }, keys).textContent = text;
}

function draw() {
  const asLines = form.elements.as.value === "lines";
  document.getElementById("lines").hidden = !asLines;
  heat.hidden = asLines;
  [...queries.children].forEach((item, number) => {
    item.setAttribute("aria-current", number === pinned);
    item.setAttribute("aria-pressed", number === pinned);
  });
  if (asLines) drawLines();
  else drawHeat();
  say();
}

function drawLines() {
  const n = Math.max(rows[kind()].length, columns[kind()].length);
  links.setAttribute("viewBox", `0 0 100 ${n * STEP}`);
  links.style.height = `${n * 1.75}rem`;
  links.replaceChildren();
  for (const head of heads()) {
    const group = element("g", { style: `--hue: ${hue(head)}` }, links);
    weights(head).forEach((row, query) => {
      if (word() !== null && word() !== query) return;
      row.forEach((weight, key) => {
        if (weight < MIN_WEIGHT) return;
        const ends = { x1: 0, y1: (query + 0.5) * STEP, x2: 100, y2: (key + 0.5) * STEP };
        element("line", { ...ends, opacity: weight.toFixed(2) }, group);
      });
    });
  }
  // Behind each word on the right, a stripe for each head.
  [...keys.children].forEach((item, key) => {
    const shown = word() === null ? [] : heads();
    const stripes = shown.map((head, i) => {
      const strength = 0.6 * weights(head)[word()][key]; // the word stays legible
      const colour = `oklch(var(--strong) .17 ${hue(head)} / ${strength})`;
      return `${colour} ${(100 * i) / shown.length}% ${(100 * (i + 1)) / shown.length}%`;
    });
    item.style.backgroundImage = stripes.length ? `linear-gradient(90deg, ${stripes.join(", ")})` : "none";
  });
}

function drawHeat() {
  heat.replaceChildren();
  for (const head of heads()) {
    const figure = element("figure", { style: `--hue: ${hue(head)}` }, heat);
    const size = { width: columns[kind()].length, height: rows[kind()].length };
    const label = `Heat map of head ${head + 1}: words that attend from top to bottom`;
    const canvas = element("canvas", { ...size, role: "img", "aria-label": label, "data-head": head }, figure);
    element("figcaption", {}, figure).textContent = `head ${head + 1}`;
    const pen = canvas.getContext("2d");
    const colour = getComputedStyle(figure.lastChild).color;
    weights(head).forEach((row, query) => {
      row.forEach((weight, key) => {
        pen.globalAlpha = weight * (word() === null || word() === query ? 1 : 0.3);
        pen.fillStyle = colour;
        pen.fillRect(key, query, 1, 1);
      });
    });
  }
}

function say() {
  const shown = heads();
  if (!shown.length) {
    said.textContent = "No head is chosen.";
  } else if (word() === null) {
    said.textContent = `Layer ${layer() + 1}, ${shown.length === boxes.length ? "all heads" : `head ${shown.map((head) => head + 1).join(", ")}`}. Point at a word to see its lines alone.`;
  } else {
    const mean = columns[kind()].map((text, key) => {
      const total = shown.reduce((sum, head) => sum + weights(head)[word()][key], 0);
      return [total / shown.length, text];
    });
    const top = mean.sort((a, b) => b[0] - a[0]).slice(0, 4);
    const list = top.map(([weight, text]) => `${text} ${weight.toFixed(2)}`).join(", ");
    said.textContent = `${rows[kind()][word()]} → ${list}${shown.length > 1 ? " (mean of the heads)" : ""}`;
  }
}

function point(number) {
  if (pointed === number) return;
  pointed = number;
  if (pinned === null) draw();
}

function pin(number) {
  pinned = pinned === number ? null : number;
  draw();
}

const numberOf = (target) => {
  const item = target.closest("#queries li");
  return item ? [...queries.children].indexOf(item) : null;
};

queries.addEventListener("pointerover", (event) => event.pointerType === "mouse" && point(numberOf(event.target)));
queries.addEventListener("pointerleave", () => point(null));
queries.addEventListener("focusin", (event) => point(numberOf(event.target)));
queries.addEventListener("focusout", () => point(null));
queries.addEventListener("click", (event) => numberOf(event.target) !== null && pin(numberOf(event.target)));
queries.addEventListener("keydown", (event) => {
  const number = numberOf(event.target);
  const last = queries.children.length - 1;
  const moves = { ArrowDown: Math.min(number + 1, last), ArrowUp: Math.max(number - 1, 0), Home: 0, End: last };
  if (event.key === "Enter" || event.key === " ") {
    pin(number);
  } else if (event.key in moves) {
    const item = queries.children[moves[event.key]];
    for (const each of queries.children) each.tabIndex = each === item ? 0 : -1;
    item.focus();
  } else {
    return;
  }
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && pinned !== null) pin(pinned);
});

heat.addEventListener("pointermove", (event) => {
  if (!event.target.matches("canvas")) return;
  const { width, height } = event.target;
  const box = event.target.getBoundingClientRect();
  const key = Math.min(width - 1, Math.floor(((event.clientX - box.left) / box.width) * width));
  const query = Math.min(height - 1, Math.floor(((event.clientY - box.top) / box.height) * height));
  const head = Number(event.target.dataset.head);
  const weight = weights(head)[query]?.[key] ?? 0;
  said.textContent = `Head ${head + 1}: ${rows[kind()][query]} → ${columns[kind()][key]} ${weight.toFixed(3)}`;
});
heat.addEventListener("pointerleave", say);

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("change", (event) => {
  if (event.target.name === "kind") {
    pinned = pointed = null;
    writeWords();
  }
  draw();
});
for (const [id, checked] of [["all", true], ["none", false]]) {
  document.getElementById(id).addEventListener("click", () => {
    for (const box of boxes) box.checked = checked;
    draw();
  });
}
for (const button of document.querySelectorAll("[data-finding]")) {
  button.addEventListener("click", () => {
    show(data.findings[Number(button.dataset.finding)].view);
    const isBelow = links.getBoundingClientRect().top > 0.7 * innerHeight; // as on a phone
    if (isBelow) form.scrollIntoView();
  });
}

function show(view) {
  form.elements.kind.value = view.kind;
  form.elements.layer.value = view.layer - 1;
  for (const box of boxes) box.checked = view.head === null || Number(box.value) === view.head - 1;
  pinned = view.query === null ? null : view.query - 1;
  pointed = null;
  writeWords();
  draw();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
show(data.findings.length ? data.findings[0].view : { kind: "encoder", layer: 1, head: null, query: null });
