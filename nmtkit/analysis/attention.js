// Attention weights, word by word. The page has them in its JSON: by kind of attention, the words
// of queries and keys, and per layer, head and query the weights of all keys in thousandths.
"use strict";

const DATA = JSON.parse(document.getElementById("attention-data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const MIN_WEIGHT = 20; // thousandths; weaker lines are not drawn
const N_STRONGEST = 5;
const ROW = 26; // height of a word
const GAP = 260; // width of the lines, if there is space
const KEY = 52; // width of a head in the legend of a drawing

const state = { ...DATA.start, heads: new Set(), pinned: null };
let pointed = null; // the word at the pointer: its side, "query" or "key", and its number

const linesBox = document.getElementById("lines");
const strongestBox = document.getElementById("strongest");
const overviewBox = document.getElementById("overview");

function element(name, attributes, ...children) {
  const created = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  created.append(...children);
  return created;
}

function svgElement(name, attributes, text = "") {
  const created = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  created.textContent = text;
  return created;
}

const kind = () => DATA.kinds[state.kind];
const heads = () => kind().layers[state.layer];
const chosenHeads = () => [...state.heads].sort((a, b) => a - b);

/** Show a view: `head` null stands for all heads, `query` null for all words. */
function setView({ kind, layer, head, query }) {
  state.kind = kind;
  state.layer = layer;
  state.heads = new Set(head === null ? DATA.colours.keys() : [head]);
  state.pinned = query === null ? null : { side: "query", number: query };
  pointed = null;
  drawControls();
  draw();
}

/** What is shown, such as "encoder self-attention, layer 2, heads 1, 3". */
function viewName() {
  const numbers = chosenHeads().map((head) => head + 1);
  let name = `heads ${numbers.join(", ")}`;
  if (numbers.length === DATA.colours.length) name = "all heads";
  if (numbers.length === 1) name = `head ${numbers[0]}`;
  if (numbers.length === 0) name = "no head";
  return `${kind().name}, layer ${state.layer + 1}, ${name}`;
}

// Controls

function option(type, group, label, isChecked, change) {
  const input = element("input", { type, name: group });
  input.checked = isChecked;
  input.addEventListener("change", () => change(input.checked));
  return element("label", {}, input, label);
}

function button(label, click) {
  const created = element("button", { type: "button" }, label);
  created.addEventListener("click", click);
  return created;
}

function fieldset(title, ...options) {
  return element("fieldset", {}, element("legend", {}, title), ...options);
}

function swatch(head) {
  const created = element("i", { class: "swatch" });
  created.style.background = DATA.colours[head];
  return created;
}

function drawControls() {
  const kinds = Object.entries(DATA.kinds).map(([key, { name }]) =>
    option("radio", "kind", name, key === state.kind, () => {
      state.kind = key;
      state.pinned = null; // the other kind has other words
      draw();
    }),
  );
  const layers = kind().layers.map((_, layer) =>
    option("radio", "layer", `${layer + 1}`, layer === state.layer, () => {
      state.layer = layer;
      draw();
    }),
  );
  const choices = DATA.colours.map((_, head) => {
    const label = option("checkbox", "head", `${head + 1}`, state.heads.has(head), (isChecked) => {
      if (isChecked) state.heads.add(head);
      else state.heads.delete(head);
      draw();
    });
    label.append(swatch(head));
    return label;
  });
  const setAll = (all) => {
    state.heads = new Set(all ? DATA.colours.keys() : []);
    drawControls();
    draw();
  };
  const found = DATA.found.map((finding) => button(finding.name, () => setView(finding)));
  document.getElementById("controls").replaceChildren(
    fieldset("Attention", ...kinds),
    fieldset("Layer", ...layers),
    fieldset("Heads", ...choices, button("all", () => setAll(true)), button("none", () => setAll(false))),
    ...(found.length ? [fieldset("Found in this sentence", ...found)] : []),
    fieldset("Save", button("SVG", saveSvg), button("PNG", savePng)),
  );
}

/** Let the arrow keys move among elements, of which only one is a tab stop. */
function moveByKeys(elements, current, next) {
  elements.forEach((each, number) => {
    each.setAttribute("tabindex", number === current ? 0 : -1);
    each.addEventListener("focus", () => {
      for (const other of elements) other.setAttribute("tabindex", other === each ? 0 : -1);
    });
    each.addEventListener("keydown", (event) => {
      const number_ = next(number, event.key);
      if (number_ === undefined || !elements[number_]) return;
      event.preventDefault();
      elements[number_].focus();
    });
  });
}

// Lines

/** The largest weight between two words in the heads that are shown. */
function weightOf(query, key) {
  let largest = 0;
  for (const head of state.heads) largest = Math.max(largest, heads()[head][query][key]);
  return largest;
}

/** The word whose lines are shown; null for all words. */
const focus = () => pointed ?? state.pinned;

function isShown(query, key) {
  const word = focus();
  return word === null || word.number === (word.side === "query" ? query : key);
}

/** Draw the words once per view; the lines change with the word at the pointer. */
function draw() {
  const { queries, keys } = kind();
  const available = Math.max(260, linesBox.clientWidth);
  const longest = Math.max(...[...queries, ...keys].map((word) => textWidth(word)));
  const side = Math.min(Math.max(longest + 20, 110), Math.round(0.36 * available));
  const width = Math.min(available, 2 * side + GAP);
  const head = drawingHead(width);
  const top = head.height;
  const height = top + ROW * (Math.max(queries.length, keys.length) + 1);
  const svg = svgElement("svg", {
    viewBox: `0 0 ${width} ${height}`,
    preserveAspectRatio: "xMinYMin", // a printer makes it smaller
    width,
    height,
    role: "group",
    "aria-label": `${viewName()}: words, and the lines of their attention`,
    "font-size": 14,
    fill: "currentColor",
  });
  svg.style.width = `${width}px`;
  svg.style.height = `${height}px`;
  linesBox.replaceChildren(svg);

  const lines = svgElement("g", { class: "weights", "stroke-width": 2, "stroke-linecap": "round" });
  const sideName = (name, x, anchor) =>
    svgElement("text", { x, y: top + 14, "text-anchor": anchor, "font-size": 12.5, opacity: 0.75 }, name);
  svg.append(
    head.group,
    sideName(kind().query_name, side - 8, "end"),
    sideName(kind().key_name, width - side + 8, "start"),
    lines,
  );
  const rowOf = (number) => top + ROW * (number + 1.5);
  const place = { left: side, right: width - side, width: side, rowOf };
  const words = [];
  queries.forEach((word, number) => words.push(wordOf(svg, word, "query", number, place)));
  keys.forEach((word, number) => words.push(wordOf(svg, word, "key", number, place)));
  moveByKeys(words.map((word) => word.group), 0, nextWord);
  update = () => {
    drawLines(lines, place);
    for (const word of words) word.update();
    showStrongest();
  };
  update();
  drawOverview();
}

let update = () => {};

/** The number of the word that an arrow key leads to; the words of the left side come first. */
function nextWord(number, key) {
  const n = kind().queries.length;
  const side = number < n ? { begin: 0, end: n } : { begin: n, end: n + kind().keys.length };
  const row = number - side.begin;
  switch (key) {
    case "ArrowDown":
      return Math.min(number + 1, side.end - 1);
    case "ArrowUp":
      return Math.max(number - 1, side.begin);
    case "ArrowLeft":
      return Math.min(row, n - 1);
    case "ArrowRight":
      return n + Math.min(row, kind().keys.length - 1);
    case "Home":
      return side.begin;
    case "End":
      return side.end - 1;
  }
  return undefined;
}

/** The head of a drawing: what it shows, and the colours of several heads. */
function drawingHead(width) {
  const group = svgElement("g", { class: "head" });
  let y = 16;
  let line = "";
  const addLine = () => {
    group.append(svgElement("text", { x: 0, y, "font-weight": 600 }, line.trim()));
    y += 20;
  };
  for (const word of viewName().split(" ")) {
    if (line && textWidth(`${line} ${word}`, 600) > width) {
      addLine();
      line = "";
    }
    line += ` ${word}`;
  }
  addLine();
  const perRow = Math.max(1, Math.floor(width / KEY));
  const shown = state.heads.size > 1 ? chosenHeads() : [];
  shown.forEach((number, place) => {
    const x = KEY * (place % perRow);
    if (place > 0 && x === 0) y += 18;
    group.append(
      svgElement("rect", { class: "key", x, y: y - 8, width: 14, height: 6, fill: DATA.colours[number] }),
      svgElement("text", { x: x + 20, y, "font-size": 12.5 }, `${number + 1}`),
    );
  });
  return { group, height: y - (shown.length ? -8 : 8) };
}

const measure = document.createElement("canvas").getContext("2d");
const FONT = getComputedStyle(document.body).fontFamily;
function textWidth(text, weight = 400) {
  measure.font = `${weight} 14px ${FONT}`;
  return measure.measureText(text).width;
}

function drawLines(group, { left, right, rowOf }) {
  const lines = [];
  for (const head of state.heads) {
    heads()[head].forEach((row, query) => {
      row.forEach((weight, key) => {
        if (weight < MIN_WEIGHT || !isShown(query, key)) return;
        lines.push(
          svgElement("line", {
            x1: left,
            y1: rowOf(query),
            x2: right,
            y2: rowOf(key),
            stroke: DATA.colours[head],
            opacity: weight / 1000,
          }),
        );
      });
    });
  }
  group.replaceChildren(...lines);
}

/** A word that shows its lines when it is pointed at, and keeps them when it is chosen. */
function wordOf(svg, word, side, number, { left, right, width, rowOf }) {
  const isQuery = side === "query";
  const group = svgElement("g", { class: "word", role: "button" });
  group.setAttribute("aria-label", `${word}, ${isQuery ? kind().query_name : kind().key_name}`);
  const x = isQuery ? left - 8 : right + 8;
  const y = rowOf(number);
  const box = svgElement("rect", { x: isQuery ? 0 : right, y: y - ROW / 2, width, height: ROW });
  const text = svgElement("text", { x, y: y + 5, "text-anchor": isQuery ? "end" : "start" }, word);
  group.append(svgElement("title", {}, word), box, text);
  svg.append(group);
  shorten(text, word, width - 12);

  const isThis = (other) => other !== null && other.side === side && other.number === number;
  const point = (isPointed) => {
    pointed = isPointed ? { side, number } : null;
    update();
  };
  group.addEventListener("pointerenter", (event) => {
    if (event.pointerType === "mouse") point(true); // a tap is a click
  });
  group.addEventListener("pointerleave", () => point(false));
  group.addEventListener("focus", () => {
    if (group.matches(":focus-visible")) point(true); // not of a click
  });
  group.addEventListener("blur", () => point(false));
  const toggle = () => {
    state.pinned = isThis(state.pinned) ? null : { side, number };
    update();
  };
  group.addEventListener("click", toggle);
  group.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    toggle();
  });
  return {
    group,
    update() {
      const word = focus();
      const isFocus = isThis(word);
      let strength = 1;
      if (word !== null && !isFocus) {
        strength = 0;
        if (word.side !== side) {
          const pair = isQuery ? [number, word.number] : [word.number, number];
          strength = weightOf(...pair) / 1000;
        }
      }
      group.setAttribute("aria-pressed", isThis(state.pinned));
      group.classList.toggle("focus", isFocus);
      text.style.opacity = 0.55 + 0.45 * strength;
      box.style.fillOpacity = isFocus ? 1 : word === null ? 0 : 0.6 * strength;
    },
  };
}

/** Cut a text off that is wider than its place. */
function shorten(text, word, width) {
  let length = word.length;
  while (length > 1 && text.getComputedTextLength() > width) {
    length -= 1;
    text.textContent = `${word.slice(0, length)}…`;
  }
}

// The strongest weights, of a word or of all, as text

function showStrongest() {
  if (state.heads.size === 0) {
    strongestBox.replaceChildren(
      element("p", {}, "No head is chosen. Choose one in the list of heads or among the small drawings."),
    );
    return;
  }
  const { queries, keys } = kind();
  const weights = [];
  for (const head of state.heads) {
    heads()[head].forEach((row, query) => {
      row.forEach((weight, key) => {
        if (weight >= MIN_WEIGHT && isShown(query, key)) weights.push({ head, query, key, weight });
      });
    });
  }
  weights.sort((a, b) => b.weight - a.weight);
  const rows = weights.slice(0, N_STRONGEST).map(({ head, query, key, weight }) => {
    const value = element("b", {}, (weight / 1000).toFixed(2));
    return element("li", {}, swatch(head), `${queries[query]} → ${keys[key]} `, value, `, head ${head + 1}`);
  });
  strongestBox.replaceChildren(element("h3", {}, "Strongest"), element("ol", {}, ...rows));
}

// All layers and heads

let drawnKind = null;
let thumbs = []; // by layer and head

/** Draw all heads of all layers, unless they are drawn, and mark those that are shown. */
function drawOverview() {
  if (drawnKind !== state.kind) {
    drawnKind = state.kind;
    const { layers } = kind();
    const n = DATA.colours.length;
    const grid = element("div", { class: "heads" });
    grid.style.gridTemplateColumns = `max-content repeat(${n}, minmax(1.6rem, 4rem))`;
    const caption = (text) => element("span", {}, text);
    grid.append(caption("head"), ...DATA.colours.map((_, head) => caption(`${head + 1}`)));
    thumbs = [];
    layers.forEach((_, layer) => {
      grid.append(caption(`layer ${layer + 1}`));
      DATA.colours.forEach((_, head) => {
        const thumb = thumbOf(layer, head);
        thumbs.push(thumb);
        grid.append(thumb);
      });
    });
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -n, ArrowDown: n };
    moveByKeys(thumbs, 0, (number, key) => (key in steps ? number + steps[key] : undefined));
    overviewBox.replaceChildren(element("h3", {}, `All layers and heads: ${kind().name}`), grid);
  }
  thumbs.forEach((thumb, number) => {
    const n = DATA.colours.length;
    const isChosen = Math.floor(number / n) === state.layer && state.heads.has(number % n);
    thumb.setAttribute("aria-pressed", isChosen);
  });
}

/** A small drawing of a head, which leads to it. */
function thumbOf(layer, head) {
  const name = `layer ${layer + 1}, head ${head + 1}`;
  const canvas = element("canvas", { width: 96, height: 96 });
  const thumb = element("button", { type: "button", title: name, "aria-label": name }, canvas);
  thumb.addEventListener("click", () => {
    setView({ kind: state.kind, layer, head, query: null });
    document.getElementById("view").scrollIntoView({ block: "nearest" });
  });
  const context = canvas.getContext("2d");
  context.strokeStyle = DATA.colours[head];
  context.lineWidth = 2;
  const rows = Math.max(kind().queries.length, kind().keys.length);
  const rowOf = (number) => (96 * (number + 0.5)) / rows;
  kind().layers[layer][head].forEach((weights, query) => {
    weights.forEach((weight, key) => {
      if (weight < MIN_WEIGHT) return;
      context.globalAlpha = weight / 1000;
      context.beginPath();
      context.moveTo(6, rowOf(query));
      context.lineTo(90, rowOf(key));
      context.stroke();
    });
  });
  return thumb;
}

// Saving

/** The drawing as a file: dark on white, without what depends on the style of the page. */
function drawingText() {
  const drawing = linesBox.querySelector("svg").cloneNode(true);
  const { width, height } = drawing.viewBox.baseVal;
  drawing.setAttribute("xmlns", SVG);
  drawing.setAttribute("viewBox", `-16 -12 ${width + 32} ${height + 24}`);
  drawing.setAttribute("width", width + 32);
  drawing.setAttribute("height", height + 24);
  drawing.setAttribute("font-family", "system-ui, sans-serif");
  drawing.setAttribute("style", "color: #1d1e20");
  for (const box of drawing.querySelectorAll(".word rect")) box.setAttribute("fill", "#fde3b5");
  for (const word of drawing.querySelectorAll(".word")) word.removeAttribute("tabindex");
  drawing.prepend(svgElement("rect", { x: -16, y: -12, width: "100%", height: "100%", fill: "#fff" }));
  return new XMLSerializer().serializeToString(drawing);
}

function save(blob, suffix) {
  const numbers = chosenHeads().map((head) => head + 1);
  const name = ["attention", state.kind, state.layer + 1, ...numbers].join("-");
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: `${name}.${suffix}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000); // after the browser has read it
}

const svgBlob = () => new Blob([drawingText()], { type: "image/svg+xml" });
const saveSvg = () => save(svgBlob(), "svg");

async function savePng() {
  const image = new Image();
  image.src = URL.createObjectURL(svgBlob());
  await image.decode();
  const scale = 3; // sharp on a slide
  const canvas = element("canvas", { width: scale * image.width, height: scale * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  canvas.toBlob((blob) => save(blob, "png"));
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  state.pinned = null;
  pointed = null;
  update();
});
document.getElementById("explorer").hidden = false;
let drawnWidth = linesBox.clientWidth;
addEventListener("resize", () => {
  if (linesBox.clientWidth === drawnWidth) return;
  drawnWidth = linesBox.clientWidth;
  draw();
});
setView(DATA.start);
