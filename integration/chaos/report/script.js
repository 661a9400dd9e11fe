"use strict";
(() => {
  const data = {{.Timeline.Data}};
  const frame = document.querySelector(".timeline");
  const svg = frame.querySelector("svg");
  const cross = svg.querySelector(".cross");
  const box = document.getElementById("readout");
  const clock = (s) => {
    const two = (n) => String(Math.floor(n)).padStart(2, "0");
    return s < 60 ? s.toFixed(1) + "s" : s < 3600 ? Math.floor(s / 60) + ":" + two(s % 60) : Math.floor(s / 3600) + ":" + two((s / 60) % 60) + ":" + two(s % 60);
  };
  const hide = () => { box.style.display = "none"; cross.style.visibility = "hidden"; };
  const element = (tag, text) => { const e = document.createElement(tag); e.textContent = text; return e; };
  const show = (event) => {
    const r = svg.getBoundingClientRect();
    const share = (event.clientX - r.left) / r.width;
    const at = ((share - data.Left) / (data.Right - data.Left)) * data.Length;
    const row = data.Rows[Math.floor(at / data.Step)];
    if (at < 0 || at > data.Length || !row) { hide(); return; }
    const x = share * svg.viewBox.baseVal.width;
    cross.setAttribute("x1", x);
    cross.setAttribute("x2", x);
    cross.style.visibility = "visible";
    box.replaceChildren(element("b", clock(at)));
    data.Names.forEach((name, i) => {
      const line = document.createElement("div");
      line.append(element("span", name), element("strong", row[i]));
      box.append(line);
    });
    for (const f of data.Faults || []) {
      if (f.Start <= at && at <= f.End) box.append(element("em", f.Label));
    }
    box.style.display = "block";
    const f = frame.getBoundingClientRect();
    const left = event.clientX - f.left + 16;
    box.style.left = (left + box.offsetWidth > f.width ? left - box.offsetWidth - 32 : left) + "px";
    box.style.top = Math.min(Math.max(event.clientY - f.top - 40, 4), f.height - box.offsetHeight - 4) + "px";
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerleave", hide);
  const copy = document.getElementById("copy");
  if (copy) copy.addEventListener("click", () => {
    navigator.clipboard.writeText(document.getElementById("command").textContent).then(() => { copy.textContent = "copied"; });
  });
})();
