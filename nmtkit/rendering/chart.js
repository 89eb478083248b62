// The values of a chart at the pointer. The points of a series are in its data-points: their
// positions in the drawing, and what they are called.
"use strict";

const REACH = 30; // distance in pixels of the drawing up to which a point is near the pointer

const box = document.createElement("div");
box.className = "values";
box.hidden = true;
document.body.append(box);

/** The point of a series that is nearest to the pointer; undefined if none is near. */
function nearest(series, at, distance) {
  let best;
  let shortest = REACH;
  for (const [x, y, place, value] of series.points) {
    const length = distance(x - at.x, y - at.y);
    if (length < shortest) {
      best = { name: series.name, colour: series.colour, place, value, length };
      shortest = length;
    }
  }
  return best;
}

/** The points to show: of every line, the one at the pointer's step; else the nearest dot. */
function pointsAt(chart, at) {
  const isLines = chart.some((series) => series.isLine);
  const distance = isLines ? (x) => Math.abs(x) : Math.hypot;
  const points = [];
  for (const series of chart) {
    const point = nearest(series, at, distance);
    if (point) points.push(point);
  }
  points.sort((a, b) => a.length - b.length);
  return isLines ? points : points.slice(0, 1);
}

function showValues(points, axis, event) {
  const lines = [];
  let place;
  for (const point of points) {
    if (point.place !== place) {
      place = point.place;
      const head = document.createElement("div");
      head.textContent = axis ? `${axis} ${place}` : place;
      lines.push(head);
    }
    const dot = document.createElement("i");
    dot.style.background = point.colour;
    const line = document.createElement("div");
    line.append(dot, point.name ? `${point.name}: ${point.value}` : point.value);
    lines.push(line);
  }
  box.replaceChildren(...lines);
  box.hidden = lines.length === 0;
  // The box stays on the screen: left of the pointer in the right half, else right of it.
  const isRight = event.clientX > document.documentElement.clientWidth / 2;
  const x = isRight ? event.pageX - box.offsetWidth - 14 : event.pageX + 14;
  box.style.left = `${Math.max(4, x)}px`;
  box.style.top = `${event.pageY + 14}px`;
}

for (const svg of document.querySelectorAll("svg.chart")) {
  const chart = [];
  for (const group of svg.querySelectorAll("g[data-points]")) {
    chart.push({
      name: group.dataset.name,
      points: JSON.parse(group.dataset.points),
      colour: getComputedStyle(group).stroke,
      isLine: group.querySelector("path") !== null,
    });
  }
  const show = (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    showValues(pointsAt(chart, at), svg.dataset.axis, event);
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", (event) => {
    // A finger leaves when it is lifted; what it pointed at stays until it points elsewhere.
    if (event.pointerType === "mouse") box.hidden = true;
  });
}
document.addEventListener("pointerdown", (event) => {
  if (!event.target.closest("svg.chart")) box.hidden = true;
});
