// Filters above the table of all ops: words, family, dtype and device. Without this script the table is whole.
(() => {
  const table = document.querySelector("table.ops");
  const headings = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
  const rows = [...table.tBodies[0].rows].map((row) => ({
    row,
    text: row.textContent.toLowerCase(),
    of: (heading) => row.cells[headings.indexOf(heading)].textContent.trim().split(", "),
  }));
  const columns = { Family: "family", Dtype: "dtypes", Device: "kernels for" };

  const form = document.createElement("form");
  form.className = "op-filters";
  form.setAttribute("role", "search");
  const count = document.createElement("output");
  const words = document.createElement("input");
  words.type = "search";
  words.placeholder = "name or words";
  words.setAttribute("aria-label", "Words in an op's name or meaning");
  form.append(labelled("Search", words));

  const choices = Object.entries(columns).map(([label, heading]) => {
    const select = document.createElement("select");
    const values = [...new Set(rows.flatMap((row) => row.of(heading)))].filter((value) => value !== "");
    for (const value of ["any", ...values]) select.append(new Option(value, value));
    form.append(labelled(label, select));
    return { select, heading, name: label.toLowerCase() };
  });
  form.append(count);

  function labelled(text, field) {
    const label = document.createElement("label");
    label.append(text, field);
    return label;
  }

  function apply() {
    const asked = words.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    let shown = 0;
    for (const { row, text, of } of rows) {
      const fits =
        asked.every((word) => text.includes(word)) &&
        choices.every(({ select, heading }) => select.value === "any" || of(heading).includes(select.value));
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length} ops`;
  }

  // A link may name filters: ops/index.html?family=norm&dtype=float16&q=rms
  const given = new URLSearchParams(location.search);
  words.value = given.get("q") ?? "";
  for (const { select, name } of choices) {
    const value = given.get(name);
    if ([...select.options].some((option) => option.value === value)) select.value = value;
  }
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  (table.closest(".table-wrapper") ?? table).before(form);
  apply();
})();
