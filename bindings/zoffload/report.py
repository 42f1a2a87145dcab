"""The report after a run, for people: where the time went, predicted against measured, and what
bounded it."""

from __future__ import annotations

from .metrics import Source, flat

WAITS = {
    "disk": "waiting for disk",
    "link": "waiting for the link to the device",
    "cpu": "waiting for CPU workers",
    "turn": "waiting for other ranks",
    "slot": "waiting for a free buffer",
    "user": "waiting for your work on the device",
    "engine": "the engine itself",
}


def report(source: Source) -> str:
    books = source.books()
    steps = max((b["step_count"] for b in books), default=0)
    if steps == 0:
        return "zoffload: no step yet"
    total = flat([b["total"] for b in books])
    seconds = float(total["seconds"])
    lines = [f"zoffload: {steps} steps in {time_text(seconds)} since it was opened"]

    def row(text: str, value: float) -> None:
        lines.append(f"  {text:<36} {time_text(value):>9}  {value / seconds:>4.0%}")

    row("your code", max(0.0, seconds - float(total["stall_seconds"])))
    for why, text in WAITS.items():
        if (value := float(total[f"stall_seconds/{why}"])) > 0:
            row(text, value)
    lines.append("busy, under all of that:")
    for key, value in total.items():
        if key.startswith("busy_seconds/"):
            row(key.removeprefix("busy_seconds/"), float(value))
    lines.append("moved per step:")
    for key, value in total.items():
        if key.startswith("bytes/") and key.count("/") == 1:
            way = key.removeprefix("bytes/").replace("_to_", " to ")
            lines.append(f"  {way:<36} {float(value) / steps / 2**20:>9.1f} MiB")
    if "memory_bytes_per_second" in total:
        rate = float(total["memory_bytes_per_second"]) / 1e9
        lines.append(f"the update moved {rate:.1f} GB/s through memory")
    bound = float(total["bound_seconds"])
    lines.append(
        f"at best {time_text(bound)}, bound by {total['bound_by']}: "
        f"{float(total['share_of_bound']):.0%} of that was reached"
    )
    return "\n".join(lines)


def time_text(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"
