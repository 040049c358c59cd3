"use strict";
const SVG = "http://www.w3.org/2000/svg", H = 250, L = 52, R = 12, T = 12, B = 34, SILENT = 10;
let W = 480;  // units of a chart's width: fewer on a phone, so that its text stays readable
const at = (object, path) => path.split(".").reduce((value, name) => value == null ? value : value[name], object);
const missing = "–";
const short = (value) => {
  if (value == null) return missing;
  const size = Math.abs(value);
  if (size >= 1e6) return (value / 1e6).toPrecision(3) + "M";
  if (size >= 1e4) return (value / 1e3).toPrecision(3) + "k";
  if (size && size < 1e-3) return value.toExponential(1);
  return String(Number(value.toPrecision(4)));
};
const formats = {
  count: (value) => value == null ? missing : value.toLocaleString("en-US"),
  short,
  ms: (value) => value == null ? missing : Number(value.toPrecision(3)) + " ms",
  mib: (value) => value == null ? missing : Math.round(value / 1048576).toLocaleString("en-US") + " MiB",
  percent: (value) => value == null ? missing : (100 * value).toFixed(1) + "%",
};
const node = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};
const mark = (name, attributes, text) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
};
const finite = (values) => values.filter((value) => value != null && Number.isFinite(value));

function ticks(low, high, about = 5) {
  const rough = (high - low) / about, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999) || rough;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= Math.floor(high / step + 1e-9); i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

function axes(title, xs, ys, format = short) {
  let [x0, x1] = [Math.min(...xs), Math.max(...xs)], [y0, y1] = [Math.min(...ys), Math.max(...ys)];
  if (!(x1 > x0)) { x0 -= 0.5; x1 = x0 + 1; }
  if (!(y1 > y0)) { const pad = Math.abs(y0) * 0.1 || 0.5; y0 -= pad; y1 += pad; }
  const svg = mark("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title});
  const px = (x) => L + (x - x0) / (x1 - x0) * (W - L - R);
  const py = (y) => H - B - Math.min(Math.max((y - y0) / (y1 - y0), -0.02), 1.02) * (H - T - B);
  for (const y of ticks(y0, y1)) {
    svg.append(mark("line", {class: "grid", x1: L, x2: W - R, y1: py(y), y2: py(y)}));
    svg.append(mark("text", {x: L - 6, y: py(y) + 4, "text-anchor": "end"}, format(y)));
  }
  for (const x of ticks(x0, x1, 4)) svg.append(mark("text", {x: px(x), y: H - B + 16, "text-anchor": px(x) > W - 30 ? "end" : "middle"}, x1 - x0 < 0.05 * Math.abs(x1) ? formats.count(x) : short(x)));
  const points = (x, y) => x.map((a, i) => [a, y[i]]).filter(([a, b]) => a != null && b != null).map(([a, b]) => `${px(a).toFixed(1)},${py(b).toFixed(1)}`);
  return {
    svg, px, py,
    label(text) { svg.append(mark("text", {x: (L + W - R) / 2, y: H - 3, "text-anchor": "middle"}, text)); return this; },
    line(x, y, kind) { svg.append(mark("polyline", {class: "line " + kind, points: points(x, y).join(" ")})); return this; },
    band(x, low, high) { svg.append(mark("polygon", {class: "band", points: [...points(x, high), ...points(x, low).reverse()].join(" ")})); return this; },
    dots(x, y, kind, sizes) { x.forEach((a, i) => { if (a != null && y[i] != null) svg.append(mark("circle", {class: kind, cx: px(a), cy: py(y[i]), r: sizes ? sizes[i] : 2.4})); }); return this; },
    columns(x, y, width) { x.forEach((a, i) => svg.append(mark("rect", {class: "bar", x: px(a - width / 2), y: py(y[i]), width: px(a + width / 2) - px(a - width / 2), height: Math.max(py(y0) - py(y[i]), 0)}))); return this; },
  };
}

function figure(title, keys, chart, note) {
  const made = node("figure", {}, node("h3", {}, title));
  if (keys.length) made.append(node("div", {class: "key"}, ...keys.map(([kind, text]) => node("span", {}, node("i", {class: kind}), text))));
  made.append(chart || node("p", {class: "quiet"}, "nothing yet"));
  if (note) made.append(node("figcaption", {}, note));
  return made;
}

function running(series, prefix, name, title, format) {
  const x = series.row || [], own = series[prefix + name] || [], base = series[prefix + "baseline_" + name] || [], last = series[prefix + "last_" + name] || [];
  const keys = [["", "natkal"], ["base", name === "log_loss" || name === "accuracy" ? "frequencies or mean so far" : "mean so far"], ["last", "same as last time"]];
  const shown = finite([...own, ...base, ...last]).sort((a, b) => a - b);
  if (!shown.length) return figure(title, keys, null);
  const ys = [shown[Math.floor(0.01 * shown.length)], shown[Math.ceil(0.99 * (shown.length - 1))]];
  const chart = axes(title, [0, ...x], ys, format).label("rows").line(x, last, "last").line(x, base, "base").line(x, own, "own");
  if (x.length === 1) chart.dots(x, own, "dot");
  return figure(title, keys, chart.svg);
}

function calibration(target) {
  const table = target.calibration;
  if (target.classes.length) {
    const rows = table.rows, most = Math.max(...rows, 1);
    if (!finite(table.hits).length) return figure("Calibration", [["ideal", "as often as predicted"]], null);
    const chart = axes("Calibration", [0, 1], [0, 1]).label("predicted probability").line([0, 1], [0, 1], "ideal");
    chart.dots(table.probability, table.hits, "dot", rows.map((n) => 3 + 9 * Math.sqrt(n / most)));
    return figure("Calibration", [["ideal", "as often as predicted"]], chart.svg, "Larger dots stand for more rows.");
  }
  if (!target.scored) return figure("Calibration", [], null);
  const chart = axes("Calibration", [0, 1], [0, Math.max(0.2, ...table.share)], formats.percent).label("tenth of the predicted law");
  chart.columns(table.share.map((_, i) => i / 10 + 0.05), table.share, 0.085).line([0, 1], [0.1, 0.1], "ideal");
  return figure("Calibration", [["ideal", "as often as predicted"]], chart.svg, "Where the observed value fell in its predicted law.");
}

function recent(target) {
  const rows = target.last, x = rows.map((_, i) => target.last_row - rows.length + 1 + i);
  if (!rows.length) return figure("Last predictions", [], null);
  if (target.classes.length) {
    const chart = axes("Last predictions", x, [0, 1]).label("row").line(x, rows.map((r) => r.probability), "own");
    chart.dots(x, rows.map((r) => r.observed == null ? null : Number(r.observed === r.predicted)), "seen");
    return figure("Last predictions", [["", "probability of the predicted class"], ["point", "right (1) or wrong (0)"]], chart.svg);
  }
  const all = finite(rows.flatMap((r) => [r.low, r.high, r.observed, r.predicted]));
  const chart = axes("Last predictions", x, all).label("row").band(x, rows.map((r) => r.low), rows.map((r) => r.high));
  chart.line(x, rows.map((r) => r.predicted), "own").dots(x, rows.map((r) => r.observed), "seen");
  return figure("Last predictions", [["", "predicted"], ["area", target.interval], ["point", "observed"]], chart.svg);
}

function lastRows(target) {
  const number = target.classes.length === 0, text = (value) => value == null ? missing : typeof value === "number" ? short(value) : value;
  const head = ["row", "predicted", number ? target.interval : "probability", "observed"];
  const body = target.last.map((r, i) => [target.last_row - target.last.length + 1 + i, text(r.predicted), number ? `${short(r.low)} to ${short(r.high)}` : formats.percent(r.probability), text(r.observed)]).reverse();
  const table = node("table", {}, node("thead", {}, node("tr", {}, ...head.map((h) => node("th", {}, h)))), node("tbody", {}, ...body.map((cells) => node("tr", {}, ...cells.map((c) => node("td", {}, String(c)))))));
  return node("figure", {class: "rows"}, node("h3", {}, "The rows themselves"), table);
}

function section(state, target, several) {
  const prefix = several ? target.target + "." : "", main = target.classes.length ? "accuracy" : "mean_absolute_error";
  const format = main === "accuracy" ? formats.percent : short;
  const tile = (name, words, form) => node("div", {class: "tile"}, node("b", {"data-figure": name, "data-raw": String(target[name] ?? "")}, form(target[name])), node("span", {}, words),
    node("span", {}, `baseline ${form(target["baseline_" + name])}, same as last ${form(target["last_" + name])}`));
  return node("section", {"data-target": target.target}, node("h2", {}, `${target.target}, ${target.task}, ${formats.count(target.scored)} rows scored`),
    node("div", {class: "tiles"}, tile("log_loss", "log loss", short), tile(main, main.replaceAll("_", " "), format)),
    node("div", {class: "grid2"}, running(state.series, prefix, "log_loss", "Log loss as it learns", short), running(state.series, prefix, main, (main === "accuracy" ? "Accuracy" : "Mean absolute error") + " as it learns", format),
      calibration(target), recent(target), lastRows(target)));
}

function choices(state) {
  const arms = Object.entries(state.arms), total = arms.reduce((sum, [, own]) => sum + own.chosen, 0) || 1, series = state.series;
  const value = (name, own) => node("div", {class: "tile"}, node("b", {"data-value": name, "data-raw": String(own.value)}, short(own.value)), node("span", {}, name), node("span", {}, `${short(own.interval[0])} to ${short(own.interval[1])}`));
  const tiles = Object.entries(state.values || {}).map(([name, own]) => value(name, own));
  const chart = (name, title) => {
    const seen = finite(series[name] || []);
    return figure(title, [], seen.length ? axes(title, [0, ...series.decision], [Math.min(0, ...seen), ...seen]).label("decisions").line(series.decision, series[name], "own").svg : null);
  };
  const head = ["arm", "chosen", "share", "mean reward"];
  const body = arms.map(([name, own]) => [name, formats.count(own.chosen), formats.percent(own.chosen / total), short(own.mean_reward)]);
  const table = node("table", {}, node("thead", {}, node("tr", {}, ...head.map((h) => node("th", {}, h)))), node("tbody", {}, ...body.map((cells) => node("tr", {}, ...cells.map((c) => node("td", {}, c))))));
  return node("section", {}, node("h2", {}, `Decisions, ${formats.count(state.rows.decided)}; rewards, ${formats.count(state.rows.rewarded)}`), node("div", {class: "tiles"}, ...tiles),
    node("div", {class: "grid2"}, chart("reward", "Mean reward as it learns"), chart("probability", "Probability of the chosen arm"), node("figure", {}, node("h3", {}, "Arms"), table)));
}

function members(weights) {
  const sorted = Object.entries(weights).sort((a, b) => b[1] - a[1]).slice(0, 12);
  if (!sorted.length) return node("p", {class: "quiet"}, "nothing yet");
  const row = 22, left = W < 400 ? 150 : 190, svg = mark("svg", {viewBox: `0 0 ${W} ${row * sorted.length + 8}`, role: "img", "aria-label": "Weights of the members"});
  sorted.forEach(([name, value], i) => {
    svg.append(mark("text", {x: left - 8, y: 19 + i * row, "text-anchor": "end"}, name.length > left / 6.2 ? name.slice(0, Math.floor(left / 6.2) - 1) + "…" : name));
    svg.append(mark("rect", {class: "bar", x: left, y: 7 + i * row, width: Math.max((W - left - 60) * value, 1), height: row - 7, rx: 2}));
    svg.append(mark("text", {x: left + (W - left - 60) * value + 6, y: 19 + i * row}, formats.percent(value)));
  });
  return svg;
}

function fill(id, rows) {
  const body = document.querySelector(`#${id} tbody`);
  body.replaceChildren(...(rows.length ? rows : [["none"]]).map((cells) => node("tr", {}, ...cells.map((c, i) => node("td", typeof c === "number" ? {class: "n"} : {}, typeof c === "number" ? formats.count(c) : String(c))))));
}

function show(state) {
  W = innerWidth < 500 ? 340 : 480;
  const names = state.targets.map((target) => target.target).join(", ") || "decisions";
  document.title = `${names}: natkal live`;
  document.getElementById("title").textContent = state.arms ? `Decisions (${state.run})` : `Predicting ${names} (${state.run})`;
  for (const place of document.querySelectorAll("[data-path]")) {
    const value = at(state, place.dataset.path);
    place.textContent = formats[place.dataset.format](value);
    place.dataset.raw = value == null ? "" : String(value);
  }
  document.getElementById("targets").replaceChildren(...(state.arms ? [choices(state)] : state.targets.map((target) => section(state, target, state.targets.length > 1))));
  document.getElementById("members").replaceChildren(members(state.members));
  const memory = state.series["effective memory"], rows = state.series.row || [];
  const chart = memory && finite(memory).length ? axes("Effective memory", [0, ...rows], [0, ...finite(memory)]).label("rows").line(rows, memory, "own").svg : null;
  document.getElementById("memory").replaceChildren(chart || node("p", {class: "quiet"}, `${short(state.effective_memory)} rows count in what is known now`));
  document.getElementById("alarms").replaceChildren(...state.alarms.slice(-3).reverse().map((alarm) => node("div", {class: "alarm", role: "alert"}, node("b", {}, alarm.kind), `row ${formats.count(alarm.row)}: ${alarm.text}`)));
  fill("refusals", Object.entries(state.traffic.refusals));
  fill("checkpoints", (state.checkpoints || []).slice().reverse().map((one) => [one.number, one.rows, new Date(1000 * one.time).toLocaleTimeString(), one.rolled_back_to ?? ""]));
  document.getElementById("view").hidden = false;
  const silent = state.time - (state.traffic.last_request ?? state.started);
  if (state.failed) say("lost", state.failed);
  else if (state.finished) say("waiting", "finished: all rows are learned");
  else if (state.traffic.last_request == null) say("waiting", "no rows yet");
  else if (silent > SILENT) say("waiting", `silent: no rows for ${Math.round(silent)} s`);
  else say("live", "live");
}

function say(kind, text) {
  const status = document.getElementById("status");
  status.className = "status " + kind;
  status.textContent = text;
  document.getElementById("view").classList.toggle("stale", kind === "lost");
}

let token = "", since = null;
async function follow() {
  for (let wait = 1; ; wait = Math.min(2 * wait, 10)) {
    try {
      const answer = await fetch("/events", {headers: token ? {authorization: "Bearer " + token} : {}, cache: "no-store"});
      if (answer.status === 401) { document.getElementById("token").hidden = false; say("waiting", "a token is needed"); return; }
      if (answer.status === 503) { say("waiting", (await answer.json()).error); await new Promise((done) => setTimeout(done, 1000)); wait = 0.5; continue; }
      if (!answer.ok) throw new Error((await answer.json()).error);
      const reader = answer.body.getReader(), decoder = new TextDecoder();
      let text = "", timer = null;
      const alive = () => { clearTimeout(timer); timer = setTimeout(() => reader.cancel(), 15000); };
      for (;;) {
        alive();
        const {done, value} = await reader.read();
        if (done) break;
        text += decoder.decode(value, {stream: true});
        const events = text.split("\n\n");
        text = events.pop();
        const last = events.filter((event) => event.startsWith("data: ")).pop();
        if (last) { show(JSON.parse(last.slice(6))); since = null; wait = 1; }
      }
      clearTimeout(timer);
      throw new Error("");
    } catch (error) {
      since = since || new Date();
      say("lost", `connection lost at ${since.toLocaleTimeString()}; trying again` + (error.message && !/fetch/i.test(error.message) ? ` (${error.message})` : ""));
    }
    await new Promise((done) => setTimeout(done, 1000 * wait));
  }
}
document.getElementById("token").addEventListener("submit", (event) => {
  event.preventDefault();
  token = event.target.querySelector("input").value.trim();
  event.target.hidden = true;
  follow();
});
follow();
