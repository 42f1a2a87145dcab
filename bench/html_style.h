// The style sheet of a report. The colours are those of Okabe and Ito, which stay apart for people
// who cannot tell all colours, darker on white ground and lighter on dark.
#pragma once

namespace zoffload::bench {

inline constexpr const char* kHtmlStyle = R"css(
:root {
  color-scheme: light dark;
  --paper: #fff; --ink: #1b1f24; --soft: #57606a; --rule: #d0d7de; --pale: #f6f8fa;
  --warn: #9a4b00; --warn-pale: #fff4e5;
  --s0: #0072b2; --s1: #d55e00; --s2: #007d5a; --s3: #b0558a; --s4: #b07d00; --s5: #2a9bd6;
  --s6: #4d4d4d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #0f1318; --ink: #e4e8ec; --soft: #9aa5b1; --rule: #333c47; --pale: #181e26;
    --warn: #ffb866; --warn-pale: #2b2216;
    --s0: #4ea3e0; --s1: #ff8b4d; --s2: #2fc494; --s3: #e08fc0; --s4: #e8b93f; --s5: #a5dcff;
    --s6: #c4c4c4;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 24px 20px 48px; max-width: 1180px; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  overflow-wrap: anywhere;
}
h1 { margin: 0 0 4px; font-size: 25px; line-height: 1.25; }
h2 { margin: 36px 0 2px; font-size: 19px; }
p { margin: 4px 0; }
.how, .soft { color: var(--soft); }
.plots { display: grid; gap: 20px 28px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); }
figure { margin: 14px 0 0; max-width: 580px; min-width: 0; break-inside: avoid; }
figcaption { font-weight: 600; margin-bottom: 6px; }
svg { display: block; width: 100%; height: auto; }
svg text { font-size: 12px; fill: var(--soft); font-family: inherit; }
.grid { stroke: var(--rule); stroke-width: 1; }
.axis { stroke: var(--soft); stroke-width: 1; }
.ground { stroke: var(--rule); stroke-width: 1; }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
.dot, .sample { stroke: var(--paper); stroke-width: 1; }
.whisker { stroke: var(--soft); stroke-width: 1.5; }
.box { fill: var(--s5); fill-opacity: .25; stroke: var(--s0); stroke-width: 1; }
.median { stroke: var(--ink); stroke-width: 2; }
.bound { stroke: var(--ink); stroke-width: 3; }
.sample { fill-opacity: .8; }
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); }
.s4 { --c: var(--s4); } .s5 { --c: var(--s5); } .s6 { --c: var(--s6); }
.dot, .bar, .sample { fill: var(--c); }
.curve { stroke: var(--c); }
.dashed.s1 { stroke-dasharray: 7 3; } .dashed.s2 { stroke-dasharray: 2 3; }
.dashed.s3 { stroke-dasharray: 9 3 2 3; } .dashed.s4 { stroke-dasharray: 12 4; }
.dashed.s5 { stroke-dasharray: 4 2; } .dashed.s6 { stroke-dasharray: 1 3; }
.bar { stroke: var(--paper); stroke-width: 1; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 4px 0 0; padding: 0;
  list-style: none; font-size: 13px; }
.legend li { display: flex; align-items: center; gap: 6px; }
svg.key { width: 28px; height: 12px; flex: none; }
.row { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 16px;
  margin-top: 9px; font-size: 13px; line-height: 1.3; }
.row span + span { color: var(--soft); font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; margin-top: 8px; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 14px 4px 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--rule); }
th { font-weight: 600; }
thead th { color: var(--soft); white-space: nowrap; }
.figures td { white-space: nowrap; } .figures td.long { white-space: normal; min-width: 180px; }
.right { text-align: right; }
.facts th { width: 32%; color: var(--soft); font-weight: 400; }
.facts table { width: 100%; table-layout: fixed; }
.warnings { margin: 18px 0 0; padding: 10px 16px; border-left: 4px solid var(--warn);
  background: var(--warn-pale); break-inside: avoid; }
.warnings h2 { margin: 0 0 4px; font-size: 16px; color: var(--warn); }
.warnings ul { margin: 0; padding-left: 20px; }
pre, code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 13px; }
pre { margin: 8px 0 0; padding: 12px 14px; background: var(--pale); border: 1px solid var(--rule);
  border-radius: 6px; white-space: pre-wrap; }
@media (max-width: 520px) { svg text { font-size: 14px; } body { padding: 16px 14px 32px; } }
@media print {
  :root {
    --paper: #fff; --ink: #000; --soft: #444; --rule: #bbb; --pale: #fff; --warn: #000;
    --warn-pale: #fff; --s0: #0072b2; --s1: #d55e00; --s2: #007d5a; --s3: #b0558a; --s4: #b07d00;
    --s5: #2a9bd6; --s6: #4d4d4d;
  }
  body { max-width: none; padding: 0; font-size: 12px; print-color-adjust: exact; }
  .scroll { overflow: visible; } .figures td { white-space: normal; }
  h2 { break-after: avoid; }
}
)css";

}  // namespace zoffload::bench
