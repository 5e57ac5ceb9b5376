/* Filters for the table of the methods: text, and a choice for each column whose cells are words of a few kinds. */
(function () {
  "use strict";
  const CHOICES = ["room", "kind", "tier", "needs"];

  function labelled(name, control) {
    const label = document.createElement("label");
    label.append(name, control);
    return label;
  }

  function choice(name, values) {
    const select = document.createElement("select");
    select.append(new Option("any", ""));
    for (const value of values) select.append(new Option(value, value));
    if (name === "needs") select.append(new Option("nothing further", "-"));
    return select;
  }

  function enhance(table, heads) {
    table.dataset.methods = "";
    const rows = Array.from(table.tBodies[0].rows, (row) => {
      const cells = Array.from(row.cells, (cell, i) => {
        cell.dataset.label = heads[i];
        return cell.textContent.trim();
      });
      return { row, cells, text: cells.join(" ").toLowerCase() };
    });
    const box = document.createElement("form");
    box.className = "filters";
    const search = document.createElement("input");
    search.type = "search";
    search.placeholder = "words in any column";
    box.append(labelled("text", search));
    const selects = [];
    for (const name of CHOICES) {
      const column = heads.indexOf(name);
      if (column < 0) continue;
      const parts = rows.flatMap((one) => one.cells[column].split(", ")).filter(Boolean);
      const select = choice(name, Array.from(new Set(parts)).sort());
      selects.push({ select, column });
      box.append(labelled(name === "room" ? "room (what it changes)" : name, select));
    }
    const count = document.createElement("output");
    box.append(count);

    function update() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const one of rows) {
        const matches =
          words.every((word) => one.text.includes(word)) &&
          selects.every(({ select, column }) => {
            const cell = one.cells[column];
            return !select.value || (select.value === "-" ? cell === "" : cell.split(", ").includes(select.value));
          });
        one.row.hidden = !matches;
        shown += matches;
      }
      count.textContent = shown + " of " + rows.length + " methods";
    }

    box.addEventListener("input", update);
    box.addEventListener("submit", (event) => event.preventDefault());
    (table.closest(".md-typeset__scrollwrap") || table).before(box);
    update();
  }

  function start() {
    for (const table of document.querySelectorAll(".md-content table")) {
      const heads = Array.from(table.tHead ? table.tHead.rows[0].cells : [], (cell) => cell.textContent.trim());
      if (heads[0] === "method" && CHOICES.every((name) => heads.includes(name))) enhance(table, heads);
    }
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
