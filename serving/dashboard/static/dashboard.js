"use strict";
// Keeps a page current: replaces the parts that the stream sends, draws the charts, and shows times as ages.
// Every page works without it; then it shows the state of its last load.

const main = document.querySelector("main");

// Times

function age(seconds) {
  if (seconds < 0) return "in " + span(-seconds);
  return seconds < 2 ? "now" : span(seconds) + " ago";
}

function span(seconds) {
  if (seconds < 60) return Math.floor(seconds) + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min";
  if (seconds < 86400) return Math.floor(seconds / 3600) + " h";
  return Math.floor(seconds / 86400) + " d";
}

function showTimes(root) {
  const now = Date.now() / 1000;
  for (const one of root.querySelectorAll("time[datetime]")) {
    const at = Date.parse(one.dateTime) / 1000;
    const text = Number.isNaN(at) ? one.textContent : age(now - at);
    if (one.textContent !== text) one.textContent = text;
  }
  for (const one of root.querySelectorAll("time[data-epoch]")) {
    one.textContent = new Date(1000 * Number(one.dataset.epoch)).toLocaleTimeString();
  }
}

// Parts

function elementOf(html) {
  const box = document.createElement("template");
  box.innerHTML = html.trim(); // the server escapes every value; the policy of the page allows no script in it
  return box.content.firstElementChild;
}

function replacePart(id, html) {
  const old = document.getElementById(id);
  const made = elementOf(html);
  if (made === null) return null;
  if (old === null) return made;
  const active = document.activeElement;
  const focus = old.contains(active) ? active.id || active.getAttribute("href") : "";
  if (old.tagName === "DETAILS") made.open = old.open;
  showTimes(made);
  filterRow(made);
  old.replaceWith(made);
  if (focus) {
    const again = [...made.querySelectorAll("a, button, [tabindex]")];
    const same = again.find((one) => one.id === focus || one.getAttribute("href") === focus);
    if (same) same.focus({ preventScroll: true });
  }
  return made;
}

function receiveParts(message) {
  const { html, lists } = JSON.parse(message.data);
  const loose = new Map();
  for (const [id, text] of Object.entries(html)) {
    const made = replacePart(id, text);
    if (made !== null && !made.isConnected) loose.set(id, made);
  }
  for (const [container, ids] of Object.entries(lists)) arrange(container, ids, loose);
  markDecisions();
}

function arrange(container, ids, loose) {
  const box = document.getElementById(container);
  if (box === null) return;
  const wanted = new Set(ids);
  for (const one of [...box.children]) if (!wanted.has(one.id)) one.remove();
  let place = box.firstElementChild;
  for (const id of ids) {
    const one = document.getElementById(id) || loose.get(id);
    if (!one) continue;
    if (one === place) place = place.nextElementSibling;
    else { showTimes(one); filterRow(one); box.insertBefore(one, place); }
  }
  const empty = document.getElementById("nothing");
  if (empty) empty.hidden = ids.length > 0;
}

let source = null;

function connect() {
  const address = main.dataset.live;
  const label = document.getElementById("connection");
  if (!address || !window.EventSource || source !== null) return;
  const show = (text, kind) => { label.textContent = text; label.className = "connection " + kind; };
  source = new EventSource(address);
  source.addEventListener("open", () => show("live", "on"));
  source.addEventListener("error", () => show("not connected", "off"));
  source.addEventListener("parts", receiveParts);
  source.addEventListener("tick", drawCharts);
  source.addEventListener("end", () => { disconnect(); location.reload(); });
}

function disconnect() {
  if (source !== null) source.close();
  source = null;
}

// A page that nobody sees costs nothing. Browsers also allow only six connections to one address.
let hiding = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(disconnect, 5000);
  else connect();
});
window.addEventListener("pagehide", disconnect);
window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

// The filter of the list

const filter = document.querySelector("[data-filter]");

function filterRow(row) {
  if (!filter || row.tagName !== "TR") return;
  row.hidden = !row.id.slice(2).includes(filter.value.trim().toLowerCase());
}

if (filter) {
  filter.addEventListener("input", () => {
    for (const row of document.getElementById(filter.dataset.filter).children) filterRow(row);
  });
}

// Charts

const charts = [];
let decisions = [];

function markDecisions() {
  decisions = [...document.querySelectorAll("#decisions [data-at]")].map((one) => Date.parse(one.dataset.at) / 1000);
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function linesOf(data, fields, times) {
  const lines = [];
  const several = data.series.length > 1;
  for (const one of data.series) {
    if (several && one.name === "" && fields[0] !== "replicas") continue;
    if (several && one.name !== "" && fields[0] === "replicas") continue;
    fields.forEach((field, index) => {
      const label = [one.name, fields.length > 1 ? field : ""].filter(Boolean).join(" ") || field;
      lines.push({
        label, dash: index === 0 && fields.length > 1 ? [5, 4] : [],
        colour: colour("--v" + (one.colour < 0 ? 0 : one.colour)),
        values: one[field].map((value) => (value === null ? null : value * times)),
      });
    });
  }
  return lines;
}

function number(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 100) return value.toFixed(0);
  return String(Number(value.toPrecision(3)));
}

function optionsOf(box, data, lines) {
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const marks = box.dataset.marks ? [{ draw: (plot) => drawMarks(plot) }] : [];
  return {
    width: Math.max(200, box.clientWidth), height: innerWidth >= 1900 ? 190 : 150, cursor: { sync: { key: "knodel" }, points: { size: 6 } },
    scales: { x: { time: true, range: () => [data.from, data.until] }, y: { range: (_plot, _least, most) => [0, most > 0 ? most * 1.12 : 1] } },
    axes: [{ ...axis, space: 70, size: 24, values: (_plot, at) => at.map((one) => new Date(1000 * one).toTimeString().slice(0, 5)) }, { ...axis, size: 46, values: (_plot, at) => at.map(number) }],
    series: [
      { value: (_plot, at) => (at === null ? "–" : new Date(1000 * at).toLocaleTimeString()) },
      ...lines.map((one) => ({ label: one.label, stroke: one.colour, dash: one.dash, width: 1.6, spanGaps: false, points: { show: one.values.length < 60, size: 4 }, value: (_plot, value) => number(value) })),
    ],
    plugins: marks.map((hooks) => ({ hooks })),
  };
}

function drawMarks(plot) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour("--v1");
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const at of decisions) {
    const x = plot.valToPos(at, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
  }
  ctx.restore();
}

// A place without a reading for longer than this breaks the line.
function withGaps(data) {
  const at = [], picks = [];
  data.at.forEach((one, index) => {
    if (index > 0 && one - data.at[index - 1] > Math.max(150, 3 * data.step)) { at.push(one - 1); picks.push(-1); }
    at.push(one); picks.push(index);
  });
  const series = data.series.map((one) => {
    const made = { name: one.name, colour: one.colour };
    for (const [field, values] of Object.entries(one)) if (Array.isArray(values)) made[field] = picks.map((pick) => (pick < 0 ? null : values[pick]));
    return made;
  });
  return { ...data, at, series };
}

let drawing = false;

async function drawCharts() {
  const box = document.querySelector("[data-series]");
  if (box === null || drawing || !window.uPlot) return;
  drawing = true;
  try {
    const answer = await fetch(box.dataset.series, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    const data = withGaps(await answer.json());
    const note = document.getElementById("history-note");
    note.textContent = data.note;
    note.hidden = data.note === "";
    for (const one of box.querySelectorAll(".chart")) drawChart(one, data);
  } catch (error) {
    return; // the next tick tries again
  } finally {
    drawing = false;
  }
}

function drawChart(box, data) {
  const lines = linesOf(data, box.dataset.fields.split(","), Number(box.dataset.times || 1));
  const shape = lines.map((one) => one.label + one.colour).join();
  const columns = [data.at, ...lines.map((one) => one.values)];
  const known = charts.find((one) => one.box === box);
  if (known && known.shape === shape) {
    known.range.from = data.from; known.range.until = data.until;
    known.plot.setData(columns);
    return;
  }
  if (known) { known.plot.destroy(); charts.splice(charts.indexOf(known), 1); }
  const range = { from: data.from, until: data.until };
  const plot = new uPlot(optionsOf(box, range, lines), columns, box);
  charts.push({ box, plot, shape, range });
}

function redraw() {
  while (charts.length) charts.pop().plot.destroy();
  drawCharts();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
let waiting = 0;
window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(redraw, 200); });

showTimes(document);
markDecisions();
setInterval(() => showTimes(document), 5000);
drawCharts();
connect();
