"use strict";
/* What the server tells is kept in `state`, and drawn at most once a frame, however often it tells. */
const SVG = "http://www.w3.org/2000/svg";
const LOST_SECONDS = 15, AGAIN_SECONDS = 1;
const COLUMNS = /* columns */ [];
const state = { columns: COLUMNS, points: [], stride: 1 };
const view = { x: "episodes", log: false, link: "connecting", heard: performance.now(), draws: 0, events: 0, dirty: false, speeds: [] };
const $ = id => document.getElementById(id);

// ------------------------------------------------------------------------------------------------------------- words

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const count = value => value === null || value === undefined ? "–" : whole.format(value);
const number = value => value === null || value === undefined ? "unknown" : Math.abs(value) >= 1e4 ? whole.format(value) : digits.format(value);
function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])
    if (value >= 0.9995 * size) return `${Number((value / size).toPrecision(3))} ${unit}`;
  return `${digits.format(value)} bytes`;
}
function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Number((1000 * seconds).toPrecision(2))} ms`;
  if (seconds < 60) return `${Number(seconds.toPrecision(3))} s`;
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => seconds >= size), [size, unit] = parts[first];
  const [next, rest] = parts[Math.min(first + 1, 3)], left = Math.floor(seconds % size / next);
  return `${Math.floor(seconds / size)} ${unit}${left ? ` ${left} ${rest}` : ""}`;
}
const AXES = {
  episodes: { label: "episodes per agent", text: count, tick: value => short.format(value) },
  round: { label: "rounds", text: count, tick: value => short.format(value) },
  seconds: { label: "time since the run began", text: duration, tick: duration },
};

// -------------------------------------------------------------------------------------------------------- small tools

function make(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}
function html(name, className = "", text = "") {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}
function say(element, text) { if (element.textContent !== text) element.textContent = text; }
function dress(element, className) { if (element.className !== className) element.className = className; }
function resize(parent, length, create) {
  while (parent.children.length > length) parent.lastChild.remove();
  while (parent.children.length < length) parent.append(create());
}
/** Fill a table in place; a cell is a text or [text, class]. */
function fill(section, heads, rows) {
  const [head, body] = [section.querySelector("thead"), section.querySelector("tbody")];
  resize(head, 1, () => html("tr"));
  resize(head.firstChild, heads.length, () => html("th"));
  const write = (cell, content) => {
    const [text, className] = Array.isArray(content) ? content : [content, ""];
    say(cell, text); dress(cell, className);
  };
  heads.forEach((content, i) => write(head.firstChild.children[i], content));
  resize(body, rows.length, () => html("tr"));
  rows.forEach((row, i) => {
    resize(body.children[i], row.length, () => html("td"));
    row.forEach((content, j) => write(body.children[i].children[j], content));
  });
}

// ------------------------------------------------------------------------------------------------------------ charts

const CHARTS = [
  { title: "Reward of an episode", y: "reward, mean over agents", series: [["reward", "reward", "green", ""]], text: number },
  { title: "Regret so far", y: "regret, mean over agents", series: [["regret", "regret", "vermillion", ""]], text: number },
  { title: "Optimistic and recommended value", y: "value of an episode", text: number, extra: gapText,
    series: [["optimistic", "optimistic", "orange", "6 3"], ["recommended", "recommended", "blue", ""]] },
  { title: "Length of a round", y: "episodes", text: number, log: true,
    series: [["longest", "longest", "purple", "2 2"], ["length", "mean", "blue", ""]] },
  { title: "Bytes so far, as the paper counts them", y: "bytes", text: bytes,
    series: [["bytes_up", "up, from agents", "blue", ""], ["bytes_down", "down, to agents", "vermillion", "6 3"]] },
];
const SIZE = { height: 210, left: 52, right: 12, top: 22, bottom: 36 };

function gapText(point) {
  const [a, b] = [point[at("optimistic")], point[at("recommended")]];
  return a === null || b === null ? [] : [["gap", number(a - b)]];
}
const at = name => state.columns.indexOf(name);
function ticks(low, high, most, log) {
  if (log) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const factor of high / low < 50 ? [1, 2, 5] : [1]) {
        const value = factor * 10 ** power;
        if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
      }
    return found.filter((_, i) => i % Math.ceil(found.length / most) === 0);
  }
  const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find(factor => factor * power >= raw) * power, found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step + 0);
  return found;
}
function scale(values, log, low, high) {
  const known = values.filter(value => value !== null && (!log || value > 0));
  let [least, most] = [Infinity, -Infinity];
  for (const value of known) { least = Math.min(least, value); most = Math.max(most, value); }
  if (!known.length) [least, most] = log ? [1, 10] : [0, 1];
  if (least === most) [least, most] = log ? [least / 2, most * 2] : most === 0 ? [0, 1] : [Math.min(0, least), Math.max(0, most)];
  const bend = log ? Math.log : value => value, a = bend(least), b = bend(most);
  const place = value => low + (bend(value) - a) / (b - a) * (high - low);
  return { place, least, most, log };
}

class Chart {
  constructor(about) {
    this.about = about;
    this.card = html("div", "card");
    this.legend = html("div", "legend");
    this.plot = html("div", "plot");
    this.svg = make("svg", { role: "img" });
    this.plot.append(this.svg);
    this.card.append(html("h3", "", about.title), this.legend, this.plot);
    this.samples = about.series.map(([, label, colour, dash]) => {
      const span = html("span", colour), text = html("span");
      span.append(make("svg", { viewBox: "0 0 26 8" }, make("line", { class: "sample", x1: 0, x2: 26, y1: 4, y2: 4, "stroke-dasharray": dash })), text);
      this.legend.append(span);
      return [text, label];
    });
    this.extra = html("span");
    this.legend.append(this.extra);
    $("cards").append(this.card);
    this.plot.addEventListener("pointermove", event => this.point(event));
    this.plot.addEventListener("pointerleave", () => { $("tooltip").hidden = true; this.mark?.remove(); });
  }
  draw() {
    const { series, text, y } = this.about, columns = series.map(([name]) => at(name)), x = at(view.x);
    const points = state.points.filter(point => point[x] !== null && columns.some(c => point[c] !== null) && (!view.log || point[x] > 0));
    if (!points.length) return;
    const width = Math.max(260, Math.round(this.plot.clientWidth)), { height, left, right, top, bottom } = SIZE;
    const values = points.flatMap(point => columns.map(c => point[c]));
    const positive = values.every(value => value === null || value > 0);
    const known = values.filter(value => value !== null);
    const log = Boolean(this.about.log) && positive && Math.max(...known) > 20 * Math.min(...known);
    const across = scale(points.map(point => point[x]), view.log, left, width - right);
    const up = scale(log || this.about.series[0][0] === "optimistic" || this.about.series[0][0] === "reward" ? values : [0, ...values], log, height - bottom, top);
    const parts = [];
    for (const value of ticks(up.least, up.most, 4, log)) {
      const place = up.place(value);
      parts.push(make("line", { class: "rule", x1: left, x2: width - right, y1: place, y2: place }),
        make("text", { x: left - 6, y: place + 4, "text-anchor": "end" }, text === bytes ? bytes(value) : short.format(value)));
    }
    for (const value of ticks(across.least, across.most, width < 330 ? 3 : 5, view.log)) {
      const place = across.place(value);
      parts.push(make("line", { class: "axis", x1: place, x2: place, y1: height - bottom, y2: height - bottom + 4 }),
        make("text", { x: place, y: height - bottom + 16, "text-anchor": "middle" }, AXES[view.x].tick(value)));
    }
    parts.push(make("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
      make("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, AXES[view.x].label),
      make("text", { x: 0, y: 11 }, y));
    series.forEach(([, , colour, dash], i) => {
      let path = "", pen = false;
      for (const point of points) {
        const value = point[columns[i]];
        if (value === null || (log && value <= 0)) { pen = false; continue; }
        path += `${pen ? "L" : "M"}${across.place(point[x]).toFixed(1)} ${up.place(value).toFixed(1)}`;
        pen = true;
      }
      parts.push(make("path", { class: `line ${colour}`, d: path, "stroke-dasharray": dash }));
    });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const last = points[points.length - 1];
    const now = this.samples.map(([span, label], i) => { const words = `${label}: ${text(last[columns[i]])}`; say(span, words); return words; });
    say(this.extra, (this.about.extra?.(last) ?? []).map(pair => pair.join(": ")).join(", "));
    this.svg.setAttribute("aria-label", `${this.about.title} (${y}) by ${AXES[view.x].label}; last ${now.join(", ")}`);
    this.svg.replaceChildren(...parts);
    this.drawn = { points, columns, x, across, up, log };
  }
  point(event) {
    if (!this.drawn) return;
    const { points, columns, x, across, up, log } = this.drawn, box = this.svg.getBoundingClientRect();
    const pixel = (event.clientX - box.left) * this.svg.viewBox.baseVal.width / box.width;
    let nearest = points[0];
    for (const point of points)
      if (Math.abs(across.place(point[x]) - pixel) < Math.abs(across.place(nearest[x]) - pixel)) nearest = point;
    const place = across.place(nearest[x]);
    this.mark?.remove();
    this.mark = make("g", {}, make("line", { class: "pointer", x1: place, x2: place, y1: SIZE.top, y2: SIZE.height - SIZE.bottom }));
    columns.forEach((c, i) => {
      if (nearest[c] !== null && !(log && nearest[c] <= 0))
        this.mark.append(make("circle", { class: `dot ${this.about.series[i][2]}`, cx: place, cy: up.place(nearest[c]), r: 4 }));
    });
    this.svg.append(this.mark);
    const rows = [[view.x === "seconds" ? "time" : view.x === "round" ? "round" : "episodes", AXES[view.x].text(nearest[x])],
      ...this.about.series.map(([, label], i) => [label, this.about.text(nearest[columns[i]])]), ...(this.about.extra?.(nearest) ?? [])];
    const tip = $("tooltip");
    tip.replaceChildren(...rows.flatMap(([name, value]) => [html("dt", "", name), html("dd", "", value)]));
    tip.hidden = false;
    const wide = tip.offsetWidth, high = tip.offsetHeight;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - wide - 4))}px`;
    tip.style.top = `${event.clientY + 18 + high > innerHeight ? event.clientY - high - 12 : event.clientY + 18}px`;
  }
}
const charts = CHARTS.map(about => new Chart(about));

// -------------------------------------------------------------------------------------------------- the parts of a page

const PHASES = { waiting: ["waiting for the first round", "fair"], running: ["running", "good"], over: ["finished", "good"], stopped: ["stopped early", "bad"] };
const LINKS = { connecting: ["connecting", "fair"], live: ["● connected", "good"], lost: ["○ connection lost", "bad"], ended: ["○ server has ended", ""] };
const SIGNS = { present: "● present", finished: "✓ finished", left: "– left", away: "○ away", excluded: "✕ excluded", expected: "… expected" };
const finished = () => ["over", "stopped"].includes(state.status?.phase);

function drawHeader() {
  const subject = state.subject ?? {}, phase = state.status?.phase ?? "waiting", status = state.status ?? {};
  const [words, colour] = PHASES[phase];
  say($("phase"), state.sweep && phase === "over" ? "the sweep is over" : words);
  dress($("phase"), `pill ${colour}`);
  const [said, tone] = LINKS[view.link];
  say($("link"), said);
  dress($("link"), `pill ${tone}`);
  if (!state.subject) return;
  say($("title"), subject.title);
  const title = `${subject.title} – ${phase}`;
  if (document.title !== title) document.title = title;
  const facts = subject.agents ? [`${count(subject.agents)} agents`, `${count(subject.states)} states`, `${count(subject.actions)} actions`, `horizon ${count(subject.horizon)}`] : [];
  if (subject.units) facts.push(`a step pays ${subject.units}`);
  if (state.network) facts.push(`run ${state.network.run}`);
  if (state.network?.secure_sums) facts.push("secure sums: nothing is shown of single nodes but who is there");
  say($("facts"), facts.join(" · "));
  const quiet = Math.round((performance.now() - view.heard) / 1000);
  let notice = status.text ?? "";
  if (view.link === "lost") notice = `The connection to the server is lost, for ${quiet} s now. What you see is how things stood then. Trying again.`;
  if (view.link === "ended") notice = `${notice ? `${notice} ` : ""}The server has ended with the run; what you see is the last state.`;
  $("notice").hidden = !notice;
  dress($("notice"), view.link === "lost" || phase === "stopped" ? "bad" : "");
  say($("notice"), notice);
}

function drawTiles() {
  const { now, network } = state, tiles = [];
  const add = (what, figure, more = "") => tiles.push([what, figure, more]);
  if (network) {
    const { present, finished: done, away, excluded, left, expected } = network.nodes, all = present + done + away + excluded + expected;
    const rest = [[away, "away"], [excluded, "excluded"], [expected, "expected"], [left, "left"]].filter(([n]) => n).map(([n, word]) => `${n} ${word}`);
    add(done ? "nodes finished" : "nodes present", `${count(present + done)} of ${count(all)}`, rest.join(", ") || (done ? "all have the policy" : "all are here"));
  }
  if (now) {
    add("rounds", count(now.round), `${count(now.synchronisations)} synchronisations${finished() ? "" : `, ${speed()}`}`);
    if (now.regret !== null) add("regret so far", number(now.regret), "mean over agents");
    const rewards = state.points.map(point => point[at("reward")]).filter(value => value !== null);
    if (rewards.length) add("reward", number(now.reward ?? rewards[rewards.length - 1]), "of an episode, last round");
    if (now.gap !== null) add("gap", number(now.gap), `optimistic ${number(now.optimistic_value)}, recommended ${number(now.recommended_value)}`);
    add("last round", `${count(now.length)}`, now.length === 1 ? "episode long" : "episodes long");
    add("bytes", bytes(now.bytes_up + now.bytes_down), `${bytes(now.bytes_up)} up, ${bytes(now.bytes_down)} down`);
    if (now.seconds !== null) add("time", duration(now.seconds), left(now));
  }
  if (network) {
    add("on the wire", bytes(network.bytes_up + network.bytes_down), `${bytes(network.bytes_up)} up, ${bytes(network.bytes_down)} down`);
    if (network.latency !== null) add("latency", duration(network.latency), "of an answer, mean over nodes");
    add("violations", count(network.violations), "of the rules");
  }
  const box = $("tiles");
  resize(box, tiles.length, () => { const tile = html("div", "tile"); tile.append(html("div", "what"), html("div", "figure"), html("div", "more")); return tile; });
  tiles.forEach((texts, i) => texts.forEach((text, j) => say(box.children[i].children[j], text)));
  const progress = state.sweep ? [state.sweep.done + state.sweep.failed, state.sweep.runs, "runs"] : now ? [now.episodes, now.planned_episodes, "episodes per agent"] : null;
  $("progress").hidden = !progress;
  if (progress) {
    const [done, all, what] = progress, share = all ? Math.min(1, done / all) : 0;
    $("bar").style.width = `${100 * share}%`;
    say($("bar-text"), `${count(done)} of ${count(all)} ${what} (${share > 0 && share < 0.001 ? "<0.1" : Number((100 * share).toFixed(1))} %)`);
  }
}
function speed() {
  const first = view.speeds[0], last = view.speeds[view.speeds.length - 1];
  if (!first || last[0] - first[0] < 500) return "…";
  return `${digits.format(Number(((last[1] - first[1]) / (last[0] - first[0]) * 1000).toPrecision(2)))} rounds/s`;
}
function left(now) {
  if (finished() || !now.episodes) return "since the run began";
  const more = now.seconds * (now.planned_episodes - now.episodes) / now.episodes;
  return more > 0 ? `about ${duration(more)} left` : "since the run began";
}

function drawNodes() {
  const nodes = state.nodes ?? [], secure = state.network?.secure_sums;
  $("nodes").hidden = !state.network;
  $("events").hidden = !state.network;
  if (!state.network) return;
  const all = Object.values(state.network.nodes).reduce((a, b) => a + b, 0);
  say($("nodes-caption"), !all ? "No node has come yet." : nodes.length < all ? `${count(nodes.length)} of ${count(all)} nodes are listed, those that are missing first.` : "");
  $("nodes-caption").hidden = !$("nodes-caption").textContent;
  const heads = ["node", "state"];
  if (!secure) heads.push("agents", ["episodes", "figure"], ["latency", "figure"], ["up", "figure"], ["down", "figure"]);
  fill($("nodes"), heads, nodes.map(node => {
    const row = [node.name, [SIGNS[node.state], `state ${node.state}`]];
    if (!secure) row.push(node.agents === undefined ? "–" : node.agents === 1 ? `${node.first_agent}` : `${node.first_agent}–${node.first_agent + node.agents - 1}`,
      [count(node.episodes), "figure"], [duration(node.latency), "figure"], [bytes(node.bytes_up), "figure"], [bytes(node.bytes_down), "figure"]);
    return row;
  }));
  const events = [...(state.events ?? [])].reverse();
  $("no-events").hidden = events.length > 0;
  $("events").querySelector(".scroll").hidden = events.length === 0;
  fill($("events"), [["round", "figure"], "node", "what happened", "what was done"], events.map(event => [[count(event.round), "figure"], `${event.node}`, `${event.what}`, `${event.done}`]));
}

function place(name) {
  const grid = state.subject?.grid;
  return grid && grid.cells[name] ? `${name} at (${grid.cells[name][0] + 1}, ${grid.cells[name][1] + 1})` : count(name);
}
function drawRounds() {
  const recent = state.recent ?? [], requests = state.requests;
  $("rounds").hidden = recent.length === 0;
  if (!recent.length) return;
  const total = Object.values(requests.rules).reduce((a, b) => a + b, 0);
  say($("rules"), total ? `Requests by rule: ${Object.entries(requests.rules).map(([rule, n]) => `${rule} ${count(n)}`).join(", ")}.` : "Nobody has asked for a synchronisation yet.");
  say($("askers"), requests.agents.length ? `Most often by agent ${requests.agents.map(([agent, n]) => `${agent} (${count(n)})`).join(", ")}.` : "");
  $("askers").hidden = !requests.agents.length;
  const heads = [["round", "figure"], ["length", "figure"], "who asked", "step", state.subject?.grid ? "state, at (row, column)" : "state", "action", "rule"];
  fill($("rounds"), heads, recent.map(round => [
    [count(round.round), "figure"], [count(round.length), "figure"],
    round.agent >= 0 ? `agent ${round.agent}${round.requests > 1 ? ` and ${round.requests - 1} more` : ""}` : round.requests ? "secret" : "nobody",
    round.step >= 0 ? `${round.step + 1}` : "–", round.state >= 0 ? place(round.state) : "–", round.action >= 0 ? `${round.action}` : "–", round.rule || "–",
  ]));
}

let board = null;
function drawGrid() {
  const grid = state.subject?.grid;
  $("policy").hidden = !grid || !(state.policy || state.requests);
  if ($("policy").hidden) return;
  const key = JSON.stringify(grid);
  if (board?.key !== key) {
    const svg = make("svg", { viewBox: `0 0 ${grid.columns} ${grid.rows}`, role: "img" }), squares = new Map();
    const free = new Set(grid.cells.map(cell => cell.join()));
    for (let row = 0; row < grid.rows; row++)
      for (let column = 0; column < grid.columns; column++) {
        const wall = !free.has(`${row},${column}`), box = { x: column, y: row, width: 1, height: 1 };
        svg.append(make("rect", { ...box, class: wall ? "wall" : "square" }));
        if (wall) continue;
        const asked = make("rect", { ...box, class: "asked", opacity: 0 }), title = make("title"), arrow = make("path", { class: "arrow" });
        asked.append(title);
        svg.append(asked, arrow);
        squares.set(`${row},${column}`, { asked, title, arrow });
      }
    const named = Math.max(grid.rows, grid.columns) <= 12;
    for (const [kind, cells] of [["start", [grid.start]], ["goal", grid.goals]])
      for (const [row, column] of cells) {
        svg.append(make("rect", { class: kind, x: column + .05, y: row + .05, width: .9, height: .9, rx: .08 }));
        if (named) svg.append(make("text", { x: column + .1, y: row + .24 }, kind));
      }
    $("grid").replaceChildren(svg);
    svg.style.maxWidth = `${Math.min(34, 6 * grid.columns)}rem`;
    board = { key, squares, svg };
  }
  const times = new Map();
  for (const [name, n] of state.requests?.states ?? []) {
    const cell = grid.cells[name]?.join();
    if (cell) times.set(cell, (times.get(cell) ?? 0) + n);
  }
  const most = Math.max(1, ...times.values());
  const moves = new Map((state.policy ?? []).map(([row, column, down, right]) => [`${row},${column}`, [down, right]]));
  for (const [cell, { asked, title, arrow }] of board.squares) {
    const n = times.get(cell) ?? 0, opacity = (0.55 * Math.sqrt(n / most)).toFixed(3), move = moves.get(cell), [row, column] = cell.split(",").map(Number);
    if (asked.getAttribute("opacity") !== opacity) asked.setAttribute("opacity", opacity);
    say(title, `row ${row + 1}, column ${column + 1}: ${count(n)} requests`);
    let path = "";
    if (move) {
      const [down, right] = move, long = Math.hypot(down, right);
      if (!long) path = `M${column + .5} ${row + .5}h.001`;
      else {
        const [dx, dy] = [right / long * .26, down / long * .26], [x, y] = [column + .5, row + .5];
        path = `M${x - dx} ${y - dy}L${x + dx} ${y + dy}M${x + dx * .3 - dy * .6} ${y + dy * .3 + dx * .6}L${x + dx} ${y + dy}L${x + dx * .3 + dy * .6} ${y + dy * .3 - dx * .6}`;
      }
    }
    if (arrow.getAttribute("d") !== path) arrow.setAttribute("d", path);
  }
  const words = [];
  if (state.policy) words.push("Arrows: what the recommended policy does on first reaching a square; a dot: it stays.");
  else words.push("No policy has been received yet.");
  if (times.size) words.push("Blue: where agents asked for a synchronisation, darker where more often.");
  words.push("Orange frame: start. Green frame: goal.");
  say($("policy-caption"), words.join(" "));
  board.svg.setAttribute("aria-label", `Grid of ${grid.rows} rows and ${grid.columns} columns. ${words.join(" ")}`);
}

function drawSweep() {
  const sweep = state.sweep;
  $("sweep").hidden = !sweep;
  if (!sweep) return;
  const going = sweep.runs - sweep.done - sweep.failed;
  say($("sweep-caption"), `${count(sweep.done)} done, ${count(sweep.failed)} failed, ${count(going)} ${finished() ? "not made" : "in progress or waiting"}, of ${count(sweep.runs)}.` +
    (sweep.shared ? ` All: ${sweep.shared}.` : "") +
    (sweep.rows.length < sweep.done + sweep.failed ? ` The last ${count(sweep.rows.length)} are listed.` : ""));
  const figure = text => [text, "figure"];
  fill($("sweep"), ["run", "state", "group", figure("seed"), figure("value"), figure("regret"), figure("rounds"), figure("time")],
    sweep.rows.map(row => [row.id, row.error ? ["✕ failed", "state failed"] : ["✓ done", "state present"], row.group, figure(row.seed),
      row.error ? [row.error, ""] : figure(number(row.value)), figure(row.error ? "" : number(row.regret)), figure(row.error ? "" : count(row.rounds)), figure(duration(row.seconds))]));
}

function drawCharts() {
  $("charts").hidden = state.points.length === 0;
  if (!state.points.length) return;
  const timed = state.points.some(point => point[at("seconds")] !== null);
  document.querySelector('[data-x="seconds"]').disabled = !timed;
  for (const chart of charts) chart.card.hidden = !chart.about.series.some(([name]) => state.points.some(point => point[at(name)] !== null));
  const shown = charts.filter(chart => !chart.card.hidden);
  $("cards").style.setProperty("--columns", shown.length <= 4 ? 2 : 3);
  for (const chart of shown) chart.draw();
}

// ----------------------------------------------------------------------------------------------------------- drawing

function draw() {
  view.dirty = false;
  view.draws += 1;
  for (const part of [drawHeader, drawTiles, drawNodes, drawRounds, drawCharts, drawGrid, drawSweep]) part();
  Object.assign(document.documentElement.dataset, { draws: view.draws, events: view.events, link: view.link });
}
function mark() {
  if (!view.dirty) { view.dirty = true; requestAnimationFrame(draw); }
}
function apply(increment) {
  const { first, points, ...parts } = increment;
  if (points) { state.points.length = first; for (const point of points) state.points.push(point); }
  Object.assign(state, parts);
}

// -------------------------------------------------------------------------------------------------------- the server

let source = null;
function connect() {
  source?.close();
  source = new EventSource("events");
  const hear = event => {
    view.link = "live";
    view.heard = performance.now();
    view.events += 1;
    if (event.type === "everything") {
      for (const name of Object.keys(state)) delete state[name];
      Object.assign(state, { points: [], stride: 1, columns: COLUMNS });
      view.speeds = [];
    }
    apply(JSON.parse(event.data));
    if (state.now) {
      view.speeds.push([performance.now(), state.now.round]);
      while (view.speeds.length > 2 && view.speeds[0][0] < performance.now() - 5000) view.speeds.shift();
    }
    mark();
  };
  for (const kind of ["everything", "increment", "nothing"]) source.addEventListener(kind, hear);
  source.onerror = lose;
}
function lose() {
  source?.close();
  source = null;
  view.link = finished() ? "ended" : "lost";
  mark();
  setTimeout(connect, 1000 * (finished() ? 5 : 1) * AGAIN_SECONDS);
}
setInterval(() => {
  if (source && view.link === "live" && performance.now() - view.heard > 1000 * LOST_SECONDS) lose();
  if (view.link === "lost") mark();
}, 1000);

for (const button of document.querySelectorAll(".choice button"))
  button.addEventListener("click", () => {
    if (button.dataset.x) view.x = button.dataset.x;
    if (button.dataset.log) view.log = button.dataset.log === "true";
    for (const other of button.parentElement.children) other.setAttribute("aria-pressed", other === button);
    mark();
  });
addEventListener("resize", mark);
connect();
