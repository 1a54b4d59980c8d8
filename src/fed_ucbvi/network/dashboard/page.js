"use strict";
/* What the server sends is kept in `state`, and drawn at most once a frame. */
const SVG = "http://www.w3.org/2000/svg";
const LOST_SECONDS = 15, AGAIN_SECONDS = 1;
const COLUMNS = /* columns */ [];
const state = { columns: COLUMNS, points: [], stride: 1 };
const view = { x: "episodes", log: false, link: "connecting", heard: performance.now(), draws: 0, events: 0, dirty: false, speeds: [] };
const $ = id => document.getElementById(id);

// ------------------------------------------------------------------------------------------------------------- words

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
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
function clock(seconds) {
  if (seconds === null) return "earlier";
  const then = new Date(1000 * seconds), today = then.toDateString() === new Date().toDateString();
  return `${today ? "" : `${then.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} `}${then.toLocaleTimeString("en-GB")}`;
}
const AXES = {
  episodes: { label: "episodes per agent", text: count },
  round: { label: "rounds", text: count },
  seconds: { label: "time since the run began", text: duration },
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

/** A series is [name, label, colour, dash, alpha]; its name is a column, or what `derive` gives for all points. */
const CHARTS = [
  { title: "Reward per episode", y: "reward, mean over agents", text: number, derive: points => ({ smoothed: smooth(points, at("reward"), at("episodes")) }),
    series: [["reward", "each round", "green", "", "60"], ["smoothed", "smoothed", "green", ""], ["incumbent", "incumbent", "purple", "6 3"]] },
  { title: "Regret", y: "regret, mean over agents", series: [["regret", "regret", "vermillion", ""]], text: number },
  { title: "Optimistic and recommended value", y: "value per episode", text: number, derive: points => ({ gap: points.map(gap) }),
    series: [["optimistic_value", "optimistic", "orange", "6 3"], ["recommended_value", "recommended", "blue", ""]], said: ["gap"] },
  { title: "Cost of exploring", y: "per episode, against the incumbent", text: number,
    series: [["cost", "at most", "vermillion", ""], ["allowed", "allowed", "green", "6 3"]] },
  { title: "Length of a round", y: "episodes", text: number, log: true, derive: points => ({ smoothed: smooth(points, at("length"), at("round")) }),
    series: [["length", "each round", "blue", "", "60"], ["smoothed", "smoothed", "blue", ""]] },
  { title: "Communication, as counted in the paper", y: "bytes", text: bytes,
    series: [["bytes_up", "from agents", "blue", ""], ["bytes_down", "to agents", "vermillion", "6 3"]] },
];
const FAINT = 0.4;
const UNITS = [[86400, "days"], [3600, "hours"], [60, "minutes"], [1, "seconds"]];

function gap(point) {
  const [a, b] = [point[at("optimistic_value")], point[at("recommended_value")]];
  return a === null || b === null ? null : a - b;
}
/** Means of a column over the last twentieth of the points, weighted by the increments of another one. */
function smooth(points, column, by) {
  const width = Math.ceil(points.length / 20), sums = [[0, 0]];
  return points.map((point, i) => {
    const weight = point[column] === null ? 0 : point[by] - (i ? points[i - 1][by] : 0), [sum, total] = sums[i];
    sums.push([sum + weight * (point[column] ?? 0), total + weight]);
    const [before, until] = [sums[Math.max(0, i + 1 - width)], sums[i + 1]];
    return until[1] > before[1] ? (until[0] - before[0]) / (until[1] - before[1]) : null;
  });
}
const at = name => state.columns.indexOf(name);

const HEIGHT = 205, MARGIN = { left: 44, right: 12, top: 22, bottom: 36 };

/** A scale maps numbers from `low` to `high` to places from `start` to `end`, and has ticks at round numbers. */
class Scale {
  constructor(low, high, start, end, log) {
    const of = log ? Math.log10 : value => value;
    if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
    Object.assign(this, { low, high, log });
    this.at = value => start + (end - start) * (of(Math.max(value, log ? low : -Infinity)) - of(low)) / (of(high) - of(low));
  }
  ticks(most) {
    if (this.log) {
      const first = Math.ceil(Math.log10(this.low)), count = Math.floor(Math.log10(this.high)) - first + 1;
      const powers = Array.from({ length: Math.max(0, count) }, (_, i) => 10 ** (first + i));
      if (powers.length > 1) return powers.filter((_, i) => i % Math.ceil(count / most) === 0);
    }
    const width = this.high - this.low, power = 10 ** Math.floor(Math.log10(width / most));
    const step = [1, 2, 5, 10].map(factor => factor * power).find(size => width / size <= most);
    const from = Math.ceil(this.low / step - 1e-9), until = Math.floor(this.high / step + 1e-9);
    return Array.from({ length: until - from + 1 }, (_, i) => Number(((from + i) * step).toPrecision(12)));
  }
}
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** One chart: its legend with the last values, and its curves as SVG, which is drawn anew when points arrive. */
class Chart {
  constructor(about) {
    this.about = about;
    this.card = html("div", "card");
    this.legend = html("div", "legend");
    this.plot = html("div", "plot");
    this.plot.setAttribute("role", "img");
    this.card.append(html("h3", "", about.title), this.legend, this.plot);
    this.samples = about.series.map(([, , colour, dash, alpha]) => {
      const span = html("span", colour), text = html("span");
      span.append(make("svg", { viewBox: "0 0 26 8" }, make("line", { class: "sample", x1: 0, x2: 26, y1: 4, y2: 4, "stroke-dasharray": dash, opacity: alpha ? FAINT : 1 })), text);
      this.legend.append(span);
      return text;
    });
    this.extra = html("span");
    this.legend.append(this.extra);
    this.rule = make("line", { class: "rule", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, visibility: "hidden" });
    this.plot.addEventListener("pointermove", event => this.tell(event));
    this.plot.addEventListener("pointerleave", () => this.hide());
    new ResizeObserver(mark).observe(this.plot);
    $("policy").before(this.card);
  }
  draw() {
    const { series, text, y } = this.about, x = at(view.x), derived = this.about.derive?.(state.points) ?? {};
    const [size, unit] = view.x === "seconds" ? UNITS.find(([size]) => state.points.at(-1)[x] >= 2 * size) ?? UNITS[3] : [1, ""];
    const value = (name, i) => derived[name] ? derived[name][i] : state.points[i][at(name)];
    this.names = [...series.map(([name]) => name), ...(this.about.said ?? [])];
    this.rows = [];
    state.points.forEach((point, i) => {
      if (point[x] === null || view.log && point[x] <= 0 || series.every(([name]) => value(name, i) === null)) return;
      this.rows.push({ x: point[x] / size, at: point[x], ...Object.fromEntries(this.names.map(name => [name, value(name, i)])) });
    });
    if (!this.rows.length) return;
    const last = this.rows.at(-1), now = this.labels(last).map(pair => pair.join(" "));
    this.samples.forEach((span, i) => { say(span, now[i]); span.parentElement.hidden = last[this.names[i]] === null; });
    say(this.extra, now.slice(series.length).join(", "));
    this.plot.setAttribute("aria-label", `${this.about.title} (${y}) by ${AXES[view.x].label}; last ${now.join(", ")}`);
    this.drawCurves(unit);
    this.axis = view.x;
    document.documentElement.dataset.charts = document.querySelectorAll(".plot svg").length;
  }
  labels(row) {
    return this.names.map((name, i) => [this.about.series[i]?.[1] ?? name, this.about.text(row[name])]);
  }
  drawCurves(unit) {
    const { series, y } = this.about, width = this.plot.clientWidth || 320;
    const known = this.rows.flatMap(row => series.map(([name]) => row[name])).filter(value => value !== null);
    const least = Math.min(...known), most = Math.max(...known);
    const log = Boolean(this.about.log) && least > 0 && most > 20 * least;
    const fromZero = !log && least > 0 && !["optimistic_value", "reward"].includes(series[0][0]);
    const up = new Scale(fromZero ? 0 : least, most, HEIGHT - MARGIN.bottom, MARGIN.top, log);
    this.along = new Scale(this.rows[0].x, this.rows.at(-1).x, MARGIN.left, width - MARGIN.right, view.log);
    const svg = make("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT });
    svg.append(make("text", { x: 0, y: 10 }, y));
    for (const tick of up.ticks(4)) {
      const place = up.at(tick);
      svg.append(make("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: place, y2: place }));
      svg.append(make("text", { x: MARGIN.left - 6, y: place + 4, "text-anchor": "end" }, compact.format(tick)));
    }
    const bottom = HEIGHT - MARGIN.bottom;
    svg.append(make("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: bottom, y2: bottom }));
    for (const tick of this.along.ticks(5)) {
      const place = this.along.at(tick);
      svg.append(make("line", { class: "axis", x1: place, x2: place, y1: bottom, y2: bottom + 4 }));
      svg.append(make("text", { x: place, y: bottom + 16, "text-anchor": "middle" }, compact.format(tick)));
    }
    const label = unit ? `${AXES[view.x].label}, ${unit}` : AXES[view.x].label;
    svg.append(make("text", { x: (MARGIN.left + width - MARGIN.right) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, label));
    for (const [name, , colour, dash, alpha] of series)
      svg.append(make("path", { class: `curve ${colour}`, d: this.path(name, up), "stroke-dasharray": dash, opacity: alpha ? FAINT : 1 }));
    svg.append(this.rule);
    this.plot.replaceChildren(svg);
  }
  /** The curve of a column, interrupted where it is not known. */
  path(name, up) {
    let path = "", pen = "M";
    for (const row of this.rows) {
      if (row[name] === null) { pen = "M"; continue; }
      path += `${pen}${this.along.at(row.x).toFixed(1)} ${up.at(row[name]).toFixed(1)}`;
      pen = "L";
    }
    return path;
  }
  /** Show the figures at the point that is nearest to the pointer. */
  tell(event) {
    if (!this.rows?.length) return;
    const place = event.clientX - this.plot.getBoundingClientRect().left;
    const distance = row => Math.abs(this.along.at(row.x) - place);
    const row = this.rows.reduce((best, one) => distance(one) < distance(best) ? one : best);
    for (const end of ["x1", "x2"]) this.rule.setAttribute(end, this.along.at(row.x));
    this.rule.setAttribute("visibility", "visible");
    const tip = $("tooltip"), what = view.x === "seconds" ? "time" : view.x === "round" ? "round" : "episodes";
    const rows = [[what, AXES[view.x].text(row.at)], ...this.labels(row).filter((_, i) => row[this.names[i]] !== null)];
    tip.replaceChildren(...rows.flatMap(([name, text]) => [html("dt", "", name), html("dd", "", text)]));
    tip.hidden = false;
    const wide = tip.offsetWidth, high = tip.offsetHeight;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - wide - 4))}px`;
    tip.style.top = `${event.clientY + 18 + high > innerHeight ? event.clientY - high - 12 : event.clientY + 18}px`;
  }
  hide() {
    $("tooltip").hidden = true;
    this.rule.setAttribute("visibility", "hidden");
  }
}
const charts = CHARTS.map(about => new Chart(about));

// -------------------------------------------------------------------------------------------------- the parts of a page

const PHASES = { waiting: ["waiting for round 1", "fair"], running: ["running", "good"], over: ["finished", "good"], stopped: ["stopped early", "bad"] };
const LINKS = { connecting: ["connecting", "fair"], live: ["● connected", "good"], lost: ["○ connection lost", "bad"], ended: ["server closed", ""] };
const SIGNS = { present: "● present", finished: "✓ finished", away: "○ away", excluded: "✕ excluded", expected: "… expected" };
const finished = () => ["over", "stopped"].includes(state.status?.phase);

function drawHeader() {
  const subject = state.subject ?? {}, phase = state.status?.phase ?? "waiting", status = state.status ?? {};
  const [words, colour] = PHASES[phase];
  say($("phase"), words);
  dress($("phase"), `pill ${colour}`);
  const [said, tone] = LINKS[view.link];
  say($("link"), said);
  dress($("link"), `pill ${tone}`);
  if (!state.subject) return;
  say($("title"), subject.title);
  const title = `${subject.title} – ${phase}`;
  if (document.title !== title) document.title = title;
  const facts = subject.agents ? [`${count(subject.agents)} agents`, `${count(subject.states)} states`, `${count(subject.actions)} actions`, `horizon ${count(subject.horizon)}`] : [];
  if (subject.units) facts.push(`rewards from ${subject.units}`);
  if (state.network) facts.push(`run ${state.network.run}`);
  if (state.network?.secure_sums) facts.push("secure sums: only names and states of single nodes are shown");
  say($("facts"), facts.join(" · "));
  const quiet = Math.round((performance.now() - view.heard) / 1000);
  let notice = status.text ?? "";
  if (view.link === "lost") notice = `Connection to the server lost ${quiet} s ago. The page shows the last known state and keeps trying to reconnect.`;
  if (view.link === "ended") notice = `${notice ? `${notice} ` : ""}The server closed with the run. The page shows the final state.`;
  $("notice").hidden = !notice;
  dress($("notice"), view.link === "lost" || phase === "stopped" ? "bad" : phase === "over" ? "good" : "fair");
  say($("notice"), notice);
}

function drawTiles() {
  const { now, network } = state, tiles = [];
  const add = (what, figure, more = "") => tiles.push([what, figure, more]);
  if (network) {
    const { present, finished: done, away, excluded, expected } = network.nodes, all = present + done + away + excluded + expected;
    const rest = [[away, "away"], [excluded, "excluded"], [expected, "expected"], [network.violations, "violations"]].filter(([n]) => n).map(([n, word]) => `${n} ${word}`);
    add(done ? "nodes finished" : "nodes present", `${count(present + done)} of ${count(all)}`, rest.join(", ") || "no violations");
  }
  if (now) {
    add("rounds", count(now.round), finished() ? `${count(now.synchronisations)} synchronisations` : speed());
    if (now.regret !== null) add("regret", number(now.regret), "mean over agents");
    const reward = smooth(state.points, at("reward"), at("episodes")).findLast(value => value !== null);
    if (reward !== undefined) add("reward", number(reward), `smoothed; last round ${number(now.reward)}`);
    if (now.allowed !== null) add("playing", now.playing, `exploring cost at most ${number(now.cost)}, ${number(now.allowed)} allowed`);
    if (now.gap !== null) add("gap", number(now.gap), "optimistic − recommended");
    add("communication", bytes(now.bytes_up + now.bytes_down), `as the paper counts: ${bytes(now.bytes_up)} up, ${bytes(now.bytes_down)} down`);
  }
  if (network) add("messages sent", bytes(network.bytes_up + network.bytes_down), [network.secure_sums ? "masked" : "before compression", network.latency === null ? "" : `mean latency ${duration(network.latency)}`].filter(Boolean).join("; "));
  if (now && now.seconds !== null) add("time", duration(now.seconds), left(now));
  const box = $("tiles");
  resize(box, tiles.length, () => { const tile = html("div", "tile"); tile.append(html("div", "what"), html("div", "figure"), html("div", "more")); return tile; });
  tiles.forEach((texts, i) => texts.forEach((text, j) => say(box.children[i].children[j], text)));
  const progress = state.sweep ? [state.sweep.done + state.sweep.failed, state.sweep.runs, "runs"] : now ? [now.episodes, now.planned_episodes, "episodes per agent"] : null;
  $("progress").hidden = !progress;
  if (progress) {
    dress($("bar"), { over: "good", stopped: "bad" }[state.status?.phase] ?? "");
    const [done, all, what] = progress, share = all ? Math.min(1, done / all) : 0;
    $("bar").style.width = `${100 * share}%`;
    say($("bar-text"), `${count(done)} of ${count(all)} ${what} (${share > 0 && share < 0.001 ? "<0.1" : Number((100 * share).toFixed(1))} %)${state.sweep?.left && !finished() ? `, about ${duration(state.sweep.left)} left` : ""}`);
  }
}
function speed() {
  const first = view.speeds[0], last = view.speeds[view.speeds.length - 1];
  if (!first || last[0] - first[0] < 500) return "…";
  return `${digits.format(Number(((last[1] - first[1]) / (last[0] - first[0]) * 1000).toPrecision(2)))} per second`;
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
  say($("nodes-caption"), !all ? "No node has connected yet." : nodes.length < all ? `${count(nodes.length)} of ${count(all)} nodes are listed, absent nodes first.` : "");
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
  fill($("events"), ["time", ["round", "figure"], "node", "event"], events.map(event => [clock(event.time), [count(event.round), "figure"], `${event.node}`, event.done ? `${event.what}: ${event.done}` : `${event.what}`]));
}

function place(name) {
  const grid = state.subject?.grid;
  return grid && grid.cells[name] ? `${name} (${grid.cells[name][0] + 1}, ${grid.cells[name][1] + 1})` : count(name);
}
function drawRounds() {
  const recent = state.recent ?? [], requests = state.requests;
  $("rounds").hidden = recent.length === 0;
  if (!recent.length) return;
  const total = Object.values(requests.rules).reduce((a, b) => a + b, 0);
  const by = Object.entries(requests.rules).map(([rule, n]) => `${rule} ${count(n)}`).join(", ");
  const most = requests.agents.map(([agent, n]) => `${agent} (${count(n)})`).join(", ");
  say($("requests"), total ? `Synchronisation requests by rule: ${by}.${most ? ` Most frequent agents: ${most}.` : ""}` : "No synchronisation requests yet.");
  const heads = [["round", "figure"], ["length", "figure"], "requested by", "step", state.subject?.grid ? "state (row, column)" : "state", "action", "rule", ...(state.now.allowed === null ? [] : ["playing"])];
  fill($("rounds"), heads, recent.map(round => [
    [count(round.round), "figure"], [count(round.length), "figure"],
    round.agent >= 0 ? `agent ${round.agent}${round.requests > 1 ? ` and ${round.requests - 1} more` : ""}` : round.requests ? "secret" : "–",
    round.step >= 0 ? `${round.step + 1}` : "–", round.state >= 0 ? place(round.state) : "–", round.action >= 0 ? `${round.action}` : "–", round.rule || "–", ...(state.now.allowed === null ? [] : [round.playing]),
  ]));
}

function drawCertificates() {
  const issued = state.certificates ?? [];
  $("certificates").hidden = issued.length === 0;
  if (issued.length) fill($("certificates"), [["round", "figure"], ["episodes", "figure"], "certificate"], issued.map(([round, episodes, text]) => [[count(round), "figure"], [count(episodes), "figure"], text]));
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
        if (named) svg.append(make("text", { x: column + .1, y: row + .22 }, kind));
        if (named && squares.has(`${row},${column}`)) squares.get(`${row},${column}`).named = true;
      }
    $("grid").replaceChildren(svg);
    $("policy").style.setProperty("--rows", grid.rows > 8 ? 2 : 1);
    board = { key, squares, svg };
  }
  const times = new Map();
  for (const [name, n] of state.requests?.states ?? []) {
    const cell = grid.cells[name]?.join();
    if (cell) times.set(cell, (times.get(cell) ?? 0) + n);
  }
  const most = Math.max(1, ...times.values());
  const moves = new Map((state.policy ?? []).map(([row, column, down, right]) => [`${row},${column}`, [down, right]]));
  for (const [cell, { asked, title, arrow, named }] of board.squares) {
    const n = times.get(cell) ?? 0, opacity = (0.55 * Math.sqrt(n / most)).toFixed(3), move = moves.get(cell), [row, column] = cell.split(",").map(Number);
    if (asked.getAttribute("opacity") !== opacity) asked.setAttribute("opacity", opacity);
    say(title, `row ${row + 1}, column ${column + 1}: ${count(n)} requests`);
    let path = "";
    if (move) {
      const [down, right] = move, long = Math.hypot(down, right), [x, y] = [column + .5, row + (named ? .6 : .5)];  // below the name
      if (!long) path = `M${x} ${y}h.001`;
      else {
        const [dx, dy] = [right / long * .26, down / long * .26];
        path = `M${x - dx} ${y - dy}L${x + dx} ${y + dy}M${x + dx * .3 - dy * .6} ${y + dy * .3 + dx * .6}L${x + dx} ${y + dy}L${x + dx * .3 + dy * .6} ${y + dy * .3 - dx * .6}`;
      }
    }
    if (arrow.getAttribute("d") !== path) arrow.setAttribute("d", path);
  }
  const words = [state.policy ? "Arrows: action on first reaching a square; a dot: stay." : "No policy received yet."];
  if (times.size) words.push("Blue: synchronisation requests.");
  say($("policy-caption"), words.join(" "));
  board.svg.setAttribute("aria-label", `Grid of ${grid.rows} rows and ${grid.columns} columns. ${words.join(" ")}`);
}

function drawConfiguration() {
  const { algorithm = {}, environment = {}, settings = {} } = state.subject ?? {}, list = $("configuration").querySelector("dl");
  const parts = [["Algorithm", algorithm], ["Environment", environment], ["Run", settings]].filter(([, values]) => Object.keys(values).length);
  $("configuration").hidden = !parts.length;
  resize(list, 2 * parts.length, () => html(list.children.length % 2 ? "dd" : "dt"));
  parts.forEach(([part, { name, ...values }], i) => {
    say(list.children[2 * i], name ? `${part}: ${name}` : part);
    say(list.children[2 * i + 1], Object.entries(values).map(([key, value]) => `${key} = ${value}`).join(" · "));
  });
}

function drawSweep() {
  const sweep = state.sweep;
  $("sweep").hidden = !sweep;
  if (!sweep) return;
  const going = sweep.runs - sweep.done - sweep.failed;
  say($("sweep-caption"), `${count(sweep.done)} done, ${count(sweep.failed)} failed, ${count(going)} ${finished() ? "missing" : "running or waiting"}, of ${count(sweep.runs)}.` +
    (sweep.shared ? ` All runs: ${sweep.shared}.` : "") +
    (sweep.rows.length < sweep.done + sweep.failed ? ` The last ${count(sweep.rows.length)} are listed.` : ""));
  const figure = text => [text, "figure"];
  fill($("sweep"), ["settings", figure("seed"), "state", figure("value"), figure("regret"), figure("rounds"), figure("time"), "run"],
    sweep.rows.map(row => [row.group, figure(row.seed), row.error ? ["✕ failed", "state failed"] : ["✓ done", "state present"],
      row.error ? [row.error, ""] : figure(number(row.value)), figure(row.error ? "" : number(row.regret)), figure(row.error ? "" : count(row.rounds)), figure(duration(row.seconds)), [row.id, "caption"]]));
}

/** A small curve, from 0 at the lower edge to its largest value. */
function spark(values) {
  const [width, height] = [96, 24], top = Math.max(...values) || 1;
  const points = values.map((value, i) => `${(width * i / (values.length - 1)).toFixed(1)},${(height - 1 - (height - 2) * value / top).toFixed(1)}`);
  return make("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `mean regret, up to ${number(top)}` },
    make("polyline", { points: points.join(" ") }));
}

function drawGroups() {
  const groups = state.sweep?.groups ?? [];
  $("groups").hidden = !groups.length;
  if (!groups.length) return;
  const figure = text => [text, "figure"], known = value => figure(value === null ? "" : number(value));
  fill($("groups"), ["settings", figure("done"), figure("failed"), figure("outliers"), figure("mean regret"), figure("median regret"), figure("mean value"), figure("mean rounds"), "regret"],
    groups.map(group => [group.name, figure(`${count(group.done)} of ${count(group.runs)}`), figure(count(group.failed)), figure(count(group.outliers)),
      known(group.mean), known(group.median), known(group.value), known(group.rounds), ""]));
  groups.forEach((group, i) => {
    const cell = $("groups").querySelector("tbody").children[i].lastChild, key = group.curve.join(" ");
    if (cell.dataset.curve === key) return;
    cell.dataset.curve = key;
    cell.replaceChildren(...(group.curve.length ? [spark(group.curve)] : []));
  });
}

function drawCharts() {
  $("charts").hidden = state.points.length === 0;
  if (!state.points.length) return;
  const timed = state.points.some(point => point[at("seconds")] !== null);
  document.querySelector('[data-x="seconds"]').disabled = !timed;
  for (const chart of charts) chart.card.hidden = !chart.about.series.some(([name]) => state.points.some(point => point[at(name)] !== null));
  const shown = charts.filter(chart => !chart.card.hidden);
  $("cards").style.setProperty("--columns", [2, 2, 2, 2, 2, 3, 3][shown.length + !$("policy").hidden] ?? 4);
  for (const chart of shown) chart.draw();
}

// ----------------------------------------------------------------------------------------------------------- drawing

function draw() {
  view.dirty = false;
  view.draws += 1;
  for (const part of [drawHeader, drawTiles, drawNodes, drawRounds, drawCertificates, drawGrid, drawCharts, drawConfiguration, drawGroups, drawSweep]) part();
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
connect();
