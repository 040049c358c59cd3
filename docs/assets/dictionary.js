// The interactive figure of dictionary.md: eta and lambda in step, and both learners run on one stream. No library.
(function () {
  "use strict";
  const T = 200, W = 330, H = 190, PAD = { left: 46, right: 10, top: 26, bottom: 30 };
  const NS = "http://www.w3.org/2000/svg";
  const KINDS = {
    constant: { label: "constant η", low: -3, high: -1, start: -1.3, name: "η", show: v => (10 ** v).toPrecision(3), eta: v => () => 10 ** v },
    inverse: { label: "η = 1/(t+c)", low: 0, high: 2, start: 0, name: "c", show: v => (10 ** v).toFixed(0), eta: v => t => 1 / (t + Math.round(10 ** v)) },
    root: { label: "η = c/√(t+25)", low: 0.05, high: 1, start: 0.5, name: "c", show: v => v.toFixed(2), eta: v => t => v / Math.sqrt(t + 25) },
    fading: { label: "constant λ, from η₀ = 1", low: -3, high: -1, start: -1.3, name: "λ", show: v => (10 ** v).toPrecision(3), lambda: v => 10 ** v },
  };

  function schedules(kind, value) {
    const eta = [], lambda = [NaN];
    if (KINDS[kind].eta) {
      const rate = KINDS[kind].eta(value);
      for (let t = 0; t <= T; t++) eta.push(rate(t));
      for (let t = 1; t <= T; t++) lambda.push(1 - (eta[t - 1] / eta[t] - eta[t - 1]));  // Prop. 3
    } else {
      const fading = KINDS[kind].lambda(value);
      eta.push(1);
      for (let t = 1; t <= T; t++) { eta.push(1 / ((1 - fading) / eta[t - 1] + 1)); lambda.push(fading); }
    }
    return { eta, lambda };
  }

  // The same numbers on every visit.
  function stream() {
    let seed = 12345;
    const uniform = () => { seed = (1103515245 * seed + 12345) % 2147483648; return (seed + 0.5) / 2147483648; };
    const rows = [];
    for (let t = 1; t <= T; t++) {
      const u = Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
      rows.push({ u, y: uniform() < 1 / (1 + Math.exp((t > T / 2 ? 2 : -2) * u)) ? 1 : 0 });
    }
    return rows;
  }

  function naturalGradient(rows, eta, prior) {
    let theta = 0, J = eta[0] / prior;
    return rows.map(({ u, y }, i) => {
      const p = 1 / (1 + Math.exp(-theta * u)), rate = eta[i + 1];
      J = (1 - rate) * J + rate * u * u * p * (1 - p);
      theta -= rate * (p - y) * u / J;
      return theta;
    });
  }

  function kalman(rows, lambda, prior) {
    let s = 0, P = prior;
    return rows.map(({ u, y }, i) => {
      const mean = 1 / (1 + Math.exp(-s * u)), R = mean * (1 - mean), slope = R * u;
      P /= 1 - lambda[i + 1];
      const K = P * slope / (slope * P * slope + R);
      P *= 1 - K * slope;
      s += K * (y - mean);
      return s;
    });
  }

  function element(name, attributes, parent, text) {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  }

  function chart(root, title, xlabel) {
    const svg = element("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title }, root);
    element("text", { x: PAD.left, y: 14, class: "nk-title" }, svg, title);
    element("text", { x: W - PAD.right, y: H - 4, class: "nk-label", "text-anchor": "end" }, svg, xlabel);
    const body = element("g", {}, svg);
    const plotX = (x, xs) => PAD.left + (x - xs[0]) / (xs[1] - xs[0]) * (W - PAD.left - PAD.right);
    const plotY = (y, ys) => H - PAD.bottom - (y - ys[0]) / (ys[1] - ys[0]) * (H - PAD.top - PAD.bottom);
    return function draw(xs, ys, ticks, lines, dots) {
      body.replaceChildren();
      for (const tick of ticks) {
        const y = plotY(tick.at, ys);
        element("line", { x1: PAD.left, x2: W - PAD.right, y1: y, y2: y, class: "nk-grid" }, body);
        element("text", { x: PAD.left - 5, y: y + 3.5, class: "nk-label", "text-anchor": "end" }, body, tick.text);
      }
      for (const x of [xs[0], (xs[0] + xs[1]) / 2, xs[1]])
        element("text", { x: plotX(x, xs), y: H - PAD.bottom + 13, class: "nk-label", "text-anchor": "middle" }, body, Math.round(x));
      const clip = y => Math.max(ys[0], Math.min(ys[1], y));
      for (const [points, style] of lines)
        element("polyline", { class: style, points: points.map(([x, y]) => `${plotX(x, xs).toFixed(1)},${plotY(clip(y), ys).toFixed(1)}`).join(" ") }, body);
      for (const [points, style] of dots || [])
        for (const [x, y] of points) element("circle", { cx: plotX(x, xs), cy: plotY(clip(y), ys), r: 2.6, class: style }, body);
    };
  }

  const powers = (low, high) => Array.from({ length: high - low + 1 }, (_, i) => ({ at: low + i, text: low + i < -1 ? `10${"⁻"}${"⁰¹²³⁴⁵"[-(low + i)]}` : String(10 ** (low + i)) }));

  function start() {
    const root = document.getElementById("dictionary-figure");
    if (!root || root.dataset.ready) return;
    root.dataset.ready = "yes";
    root.replaceChildren();
    const controls = document.createElement("div");
    controls.className = "nk-controls";
    const choice = document.createElement("select");
    choice.setAttribute("aria-label", "schedule");
    for (const [kind, { label }] of Object.entries(KINDS)) choice.add(new Option(label, kind));
    const slider = Object.assign(document.createElement("input"), { type: "range" });
    const shown = document.createElement("output");
    controls.append(choice, slider, shown);
    const charts = document.createElement("div");
    charts.className = "nk-charts";
    const verdict = document.createElement("p");
    verdict.className = "nk-verdict";
    root.append(controls, charts, verdict);
    const rates = chart(charts, "natural gradient: learning rate η", "observation t");
    const fadings = chart(charts, "Kalman filter: fading λ", "observation t");
    const memory = chart(charts, "weight of an observation k steps ago", "k");
    const paths = chart(charts, "learned weight: line by η, circles by λ", "observation t");
    const rows = stream(), prior = 1;

    function draw() {
      const kind = choice.value, value = Number(slider.value), { eta, lambda } = schedules(kind, value);
      slider.setAttribute("aria-label", KINDS[kind].name);
      shown.textContent = `${KINDS[kind].name} = ${KINDS[kind].show(value)}`;
      const log = x => Math.log10(Math.max(x, 1e-3));
      rates([1, T], [-3, 0], powers(-3, 0), [[eta.slice(1).map((e, i) => [i + 1, log(e)]), "nk-rate"]]);
      const top = Math.max(...lambda.slice(1)) > 0.1 ? 0.2 : 0.1;
      const ticks = [0, top / 2, top].map(at => ({ at, text: String(at) }));
      fadings([1, T], [0, top], ticks, [[lambda.slice(1).map((l, i) => [i + 1, l]), "nk-fading"]]);
      let weight = eta[T];
      const weights = [];
      for (let k = 0; k <= T - 1; k++) { weights.push([k, weight]); weight *= 1 - lambda[T - k]; }
      const most = Math.max(...weights.map(w => w[1]));
      memory([0, T], [0, most], [{ at: 0, text: "0" }, { at: most, text: most.toPrecision(2) }], [[weights, "nk-memory"]]);
      const one = naturalGradient(rows, eta, prior), other = kalman(rows, lambda, prior);
      paths([1, T], [-5, 5], [-4, 0, 4].map(at => ({ at, text: String(at) })),
        [[one.map((v, i) => [i + 1, v]), "nk-rate"]], [[other.map((v, i) => [i + 1, v]).filter((_, i) => i % 8 === 4), "nk-dots"]]);
      const gap = Math.max(...one.map((v, i) => Math.abs(v - other[i]) / Math.max(1, Math.abs(v))));
      verdict.textContent = `At t = ${T}: η = ${eta[T].toPrecision(3)}, λ = ${(Math.abs(lambda[T]) < 1e-12 ? 0 : lambda[T]).toPrecision(3)}, ` +
        `about ${Math.round(1 / eta[T]).toLocaleString("en")} observations remembered. Largest relative difference between the two learners: ${gap.toExponential(0)}.`;
    }
    function choose() {
      const { low, high, start: first } = KINDS[choice.value];
      Object.assign(slider, { min: low, max: high, step: (high - low) / 200 });
      slider.value = first;
      draw();
    }
    choice.addEventListener("change", choose);
    slider.addEventListener("input", draw);
    choose();
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
