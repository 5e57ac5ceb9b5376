"use strict";
(() => {
  const specs = JSON.parse(document.getElementById("figures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");

  // "@accent" and "@accent/20" become the style sheet's colours, so light and dark are said in one place.
  function paint(name) {
    const [word, opacity] = name.slice(1).split("/");
    const hex = getComputedStyle(document.documentElement).getPropertyValue("--" + word).trim();
    if (!opacity) return hex;
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    return `rgba(${r},${g},${b},${opacity / 100})`;
  }
  function painted(value, key = "") {
    if (typeof value === "string") return /color/.test(key) && value[0] === "@" ? paint(value) : value;
    if (Array.isArray(value)) return value.map((v) => painted(v, key));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, painted(v, k)]));
  }

  const axis = {
    gridcolor: "@hair", zeroline: false, linecolor: "@hair", tickcolor: "@hair", ticks: "", nticks: 6,
    title: { font: { color: "@quiet", size: 12 }, standoff: 6 },
  };
  function layout(own, entries, narrow) {
    const rows = own.showlegend ? Math.ceil(entries / (narrow ? 2 : 3)) : 0;
    const result = {
      margin: { l: 52, r: 14, t: 24, b: 46 + 22 * rows },
      paper_bgcolor: "@plot", plot_bgcolor: "@plot",
      font: { family: "system-ui, -apple-system, Segoe UI, Roboto, Noto Sans, sans-serif", size: 12, color: "@ink" },
      legend: { orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom", bgcolor: "@plot", font: { color: "@ink" } },
      hoverlabel: { bgcolor: "@card", bordercolor: "@hair", font: { color: "@ink" } },
      dragmode: matchMedia("(pointer: fine)").matches ? "zoom" : false,
      ...own,
    };
    for (const key of Object.keys(result).filter((k) => /^[xy]axis/.test(k))) {
      const grid = key[0] === "y" || own.hovermode === "closest";
      result[key] = { ...axis, showgrid: grid, ...result[key] };
      if (result[key].title) result[key].title = { ...axis.title, ...result[key].title };
      if (narrow && key[0] === "x") result[key].nticks = 5;
    }
    return result;
  }
  function draw() {
    const narrow = innerWidth < 720;
    for (const place of document.querySelectorAll("[data-figure]")) {
      const spec = specs[place.dataset.figure];
      const entries = spec.data.filter((trace) => trace.showlegend !== false).length;
      Plotly.react(place, painted(spec.data), painted(layout(spec.layout, entries, narrow)), { displayModeBar: false, responsive: true });
    }
  }
  draw();
  dark.addEventListener("change", draw);

  const filters = ["when", "solved", "kind"].map((key) => [key, document.getElementById("filter-" + key)]);
  function filter() {
    let shown = 0;
    for (const sample of document.querySelectorAll(".samples details")) {
      sample.hidden = filters.some(([key, select]) => select.value && sample.dataset[key] !== select.value);
      shown += !sample.hidden;
    }
    document.getElementById("filter-count").textContent = shown + " shown";
    document.querySelector(".samples .none").hidden = shown > 0;
  }
  for (const [, select] of filters) if (select) select.addEventListener("change", filter);

  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  function explain(event) {
    const token = event.target.closest ? event.target.closest("[data-l]") : null;
    tip.hidden = !token;
    if (!token) return;
    const logp = Number(token.dataset.l), p = Math.exp(logp);
    tip.textContent = `log-prob ${logp.toFixed(3)}, probability ${p < 0.001 ? p.toExponential(1) : (100 * p).toFixed(1) + " %"}`;
    const box = token.getClientRects()[0];
    tip.style.top = scrollY + box.top - 30 + "px";
    tip.style.left = Math.max(6, Math.min(scrollX + box.left, document.documentElement.clientWidth - tip.offsetWidth - 6)) + "px";
  }
  document.addEventListener("mouseover", explain);
  document.addEventListener("click", explain);

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = "Copied";
      } catch {
        // Browsers that refuse the clipboard to files: select the text, so that one key press copies it.
        getSelection().selectAllChildren(source);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
  }
})();
