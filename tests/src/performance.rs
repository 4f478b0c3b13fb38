//! Writes the document about performance from the results of the benchmarks.

use crate::bench::{BUDGETS, Budget, Machine, Samples};
use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

/// The maximum size of a file.
const FILE_MAX_BYTES: u64 = 64 << 20;
const MIB: f64 = 1024.0 * 1024.0;
/// The maximum width of a line that is not the row of a table.
const COLUMNS: usize = 120;
/// The numbers of objects in the engine's benchmark that have their own budgets.
const MILLION: f64 = 1e6;

/// The promises that tests check, and not benchmarks.
const BY_TESTS: &str = "\
* A warm standby grants within the Lease's duration and two seconds, and within a second after a clean handover: `cargo test -p tests --test timed takeover::`.
* A pause stops new writes within a second: `cargo test -p tests --test timed pause::`.
* An API server that pushes back with 429 is obeyed, and nothing is lost: `cargo test -p tests --test together flowcontrol::`.
";

/// The results of one benchmark.
#[derive(Debug)]
struct Left {
    bench: String,
    settings: Map<String, Value>,
    /// `None` if the file does not say it.
    machine: Option<Machine>,
    /// The figures by the name of the budget: median, least and most.
    figures: Vec<(String, [f64; 3])>,
    runs: Vec<Map<String, Value>>,
}

/// Returns the document, from all `*.json` files of a directory. A file `BUDGET.md` next to them gives the reason why a
/// budget is not kept, or is kept in this run only.
///
/// # Errors
/// A file is unreadable, or is no result of a benchmark.
pub fn document(directory: &Path) -> anyhow::Result<String> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    ensure!(!paths.is_empty(), "{} has no *.json: run benchmarks with JSON=FILE first", directory.display());
    let read = |path: &std::path::PathBuf| read(path).with_context(|| format!("reading {}", path.display()));
    let left = paths.iter().map(read).collect::<anyhow::Result<Vec<Left>>>()?;

    let mut text = String::from(
        "# Performance\n\n\
         `cargo run -p tests --bin performance -- docs/performance` writes this page from the results of the benchmarks. \
         `tests/benches/all.sh DIR` runs all benchmarks, and `JSON=DIR/NAME.json cargo bench …` runs one. Only the reasons \
         are written by hand.\n\n\
         The *floor* is a bare client that knows every object beforehand and sends one DELETE for each. *Upstream* is \
         kube-controller-manager with only its collector, and without limits of its client.\n\n\
         Compare only ratios of one run on one machine. The first number is the median of all rounds. The numbers in \
         brackets are the least and the most.\n\n",
    );
    machines(&mut text, &left)?;
    budgets(&mut text, &left)?;
    short(&mut text, &left, directory)?;
    barely(&mut text, &left, directory)?;
    meanings(&mut text)?;
    writeln!(text, "## Shown by tests instead\n\n{BY_TESTS}")?;
    everything(&mut text, &left)?;
    Ok(folded(text.trim_end()))
}

/// Breaks long lines of a page at spaces, but no code and no row of a table. An item of a list continues below its
/// text.
pub fn folded(text: &str) -> String {
    let (mut folded, mut is_code) = (String::new(), false);
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let is_free = !is_code && !line.starts_with('|');
        let indent = if line.starts_with("* ") || line.starts_with("  ") { "  " } else { "" };
        let mut column = 0;
        for (at, word) in line.split(' ').enumerate() {
            let length = word.chars().count();
            if at > 0 && column + 1 + length > COLUMNS && is_free {
                folded.push('\n');
                folded.push_str(indent);
                column = indent.len();
            } else if at > 0 {
                folded.push(' ');
                column += 1;
            }
            folded.push_str(word);
            column += length;
        }
        folded.push('\n');
    }
    folded
}

fn read(path: &Path) -> anyhow::Result<Left> {
    let size = fs::metadata(path)?.len();
    ensure!(size <= FILE_MAX_BYTES, "{size} bytes are too many");
    let json: Value = serde_json::from_slice(&fs::read(path)?)?;
    let bench = json["bench"].as_str().context("it does not say of which benchmark it is")?.to_owned();
    if bench == "graph" {
        return of_engine(bench, &json);
    }
    let mut figures = Vec::new();
    for figure in json["figures"].as_array().into_iter().flatten() {
        let id = figure["budget"].as_str().context("a figure of no budget")?;
        ensure!(BUDGETS.iter().any(|budget| budget.id == id), "there is no budget {id:?}");
        let number = |name: &str| figure[name].as_f64().with_context(|| format!("{id} has no {name}"));
        figures.push((id.to_owned(), [number("median")?, number("least")?, number("most")?]));
    }
    let runs = json["runs"].as_array().into_iter().flatten().map(flat).collect();
    let settings = json["settings"].as_object().cloned().unwrap_or_default();
    Ok(Left { bench, settings, machine: json.get("machine").map(Machine::of), figures, runs })
}

/// The engine has no dependencies, so its benchmark does not know the budgets.
fn of_engine(bench: String, json: &Value) -> anyhow::Result<Left> {
    let number = |name: &str| json[name].as_f64().with_context(|| format!("no {name}"));
    let (objects, bytes) = (number("objects")?, number("bytesPerObject")?);
    let near = |millions: f64| (objects / (millions * MILLION) - 1.0).abs() < 0.01;
    let memory = bytes * objects / MIB;
    let guards = json["guards"].as_f64().unwrap_or_default();
    let figures = if guards > 0.0 {
        vec![("bytes-guarded", bytes)]
    } else if near(1.0) {
        vec![("memory-1m", memory), ("bytes-per-object", bytes)]
    } else if near(10.0) {
        vec![("memory-10m", memory), ("bytes-per-object", bytes), ("batch", number("worstBatchMillis")?)]
    } else {
        // The indexes of a few objects consist mostly of spare room.
        Vec::new()
    };
    let figures = figures.into_iter().map(|(id, figure)| (id.to_owned(), [figure; 3])).collect();
    let mut settings = Map::from_iter([("OBJECTS".to_owned(), json["objects"].clone())]);
    settings.extend((guards > 0.0).then(|| ("GUARDS".to_owned(), json["guards"].clone())));
    Ok(Left { bench, settings, machine: None, figures, runs: vec![flat(json)] })
}

/// Removes objects inside objects.
fn flat(json: &Value) -> Map<String, Value> {
    fn put(into: &mut Map<String, Value>, name: &str, json: &Value) {
        match json {
            Value::Object(fields) => {
                for (field, value) in fields {
                    put(into, &if name.is_empty() { field.clone() } else { format!("{name}.{field}") }, value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                into.insert(name.to_owned(), json.clone());
            }
        }
    }
    let mut into = Map::new();
    put(&mut into, "", json);
    into
}

fn machines(text: &mut String, left: &[Left]) -> anyhow::Result<()> {
    writeln!(
        text,
        "## Machine\n\n| | processor | cores | memory | Linux | Kubernetes | date | commit |\n|---|---|---|---|---|---|---|---|"
    )?;
    let mut machines: Vec<(&Machine, Vec<&str>)> = Vec::new();
    for left in left {
        let Some(machine) = &left.machine else { continue };
        match machines.iter_mut().find(|(known, _)| *known == machine) {
            Some((_, benches)) if benches.contains(&left.bench.as_str()) => {}
            Some((_, benches)) => benches.push(&left.bench),
            None => machines.push((machine, vec![&left.bench])),
        }
    }
    for (machine, benches) in machines {
        let Machine { processor, cores, memory_mib, kernel, kubernetes, date, commit } = machine;
        let (benches, gib) = (benches.join(", "), *memory_mib as f64 / 1024.0);
        writeln!(
            text,
            "| {benches} | {processor} | {cores} | {gib:.1} GiB | {kernel} | {kubernetes} | {date} | {commit} |"
        )?;
    }
    writeln!(text)?;
    Ok(())
}

fn budgets(text: &mut String, left: &[Left]) -> anyhow::Result<()> {
    writeln!(text, "## Against the budgets\n\n| What | Of | Figure | Budget | |\n|---|---|---|---|---|")?;
    for budget in BUDGETS {
        let Budget { id, what, limit, unit, .. } = budget;
        let mut measured = false;
        for (left, figure) in of(left, id) {
            measured = true;
            let verdict = if limit.holds(figure[0]) { "kept" } else { "**short**" };
            let (size, shown) = (size(left), shown(figure));
            writeln!(text, "| {what} | {size} | {shown} {unit} | {limit} | {verdict} |")?;
        }
        if !measured {
            writeln!(text, "| {what} | | not measured | {limit} {unit} | |")?;
        }
    }
    writeln!(text)?;
    Ok(())
}

/// Returns every file with a figure for a budget.
fn of<'a>(left: &'a [Left], id: &str) -> Vec<(&'a Left, [f64; 3])> {
    let figures = |left: &'a Left| left.figures.iter().map(move |(name, figure)| (left, name, *figure));
    left.iter().flat_map(figures).filter(|(_, name, _)| *name == id).map(|(left, _, figure)| (left, figure)).collect()
}

fn short(text: &mut String, left: &[Left], directory: &Path) -> anyhow::Result<()> {
    writeln!(text, "## Where it falls short\n")?;
    let mut any = false;
    for Budget { id, what, limit, unit, .. } in BUDGETS {
        let over: Vec<_> = of(left, id).into_iter().filter(|(_, figure)| !limit.holds(figure[0])).collect();
        for (left, figure) in &over {
            any = true;
            let size = size(left);
            let comma = if size.is_empty() { "" } else { ", " };
            writeln!(text, "* **{what}**{comma}{size}: {} {unit}, and should be {limit}.", shown(*figure))?;
        }
        if let Some(why) = why(directory, id)?.filter(|_| !over.is_empty()) {
            writeln!(text, "  {why}")?;
        }
    }
    writeln!(text, "{}", if any { "" } else { "Nowhere.\n" })?;
    Ok(())
}

/// Another run may miss a budget that one run keeps by little.
fn barely(text: &mut String, left: &[Left], directory: &Path) -> anyhow::Result<()> {
    let mut found = String::new();
    for Budget { id, what, limit, .. } in BUDGETS {
        let kept = of(left, id).iter().all(|(_, figure)| limit.holds(figure[0]));
        if let Some(why) = why(directory, id)?.filter(|_| kept) {
            writeln!(found, "* **{what}**\n  {why}")?;
        }
    }
    if !found.is_empty() {
        writeln!(text, "## Kept in this run, and not in every one\n\n{found}")?;
    }
    Ok(())
}

/// Returns the hand-written reason of a budget.
fn why(directory: &Path, id: &str) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(directory.join(format!("{id}.md"))) {
        Ok(why) => Ok(Some(why.trim().replace('\n', " "))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => bail!("reading {id}.md: {error}"),
    }
}

fn meanings(text: &mut String) -> anyhow::Result<()> {
    writeln!(text, "## What each means, and how to repeat it\n\n| What | Meaning | `cargo bench` |\n|---|---|---|")?;
    for Budget { what, meaning, command, .. } in BUDGETS {
        let (command, setting) = command.split_once(" (").unwrap_or((command, ""));
        let setting =
            if setting.is_empty() { String::new() } else { format!(" with `{}`", setting.trim_end_matches(')')) };
        writeln!(text, "| {what} | {meaning} | `{command}`{setting} |")?;
    }
    writeln!(text)?;
    Ok(())
}

fn everything(text: &mut String, left: &[Left]) -> anyhow::Result<()> {
    writeln!(text, "## Everything that was measured")?;
    for left in left {
        let settings: Vec<String> = left.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        writeln!(text, "\n### {}, {}\n", left.bench, settings.join(", "))?;
        let groups = groups(&left.runs);
        // A benchmark has the same measurements for each contender, or leaves one out.
        let mut numbers: Vec<&str> = Vec::new();
        for name in groups.iter().flat_map(|(_, numbers)| numbers.keys()) {
            if !numbers.contains(&name.as_str()) {
                numbers.push(name);
            }
        }
        let cell = |number: &str, (_, numbers): &(String, BTreeMap<String, Samples>)| {
            let samples = numbers.get(number);
            samples.map_or_else(String::new, |samples| shown([samples.median(), samples.least(), samples.most()]))
        };
        let names: Vec<String> = groups.iter().map(|(name, _)| name.clone()).collect();
        // The table is rather long than wide.
        if groups.len() > numbers.len() {
            let rows = groups.iter().map(|group| numbers.iter().map(|number| cell(number, group)).collect());
            table(text, &numbers.iter().map(|&number| number.to_owned()).collect::<Vec<_>>(), names.iter().zip(rows))?;
        } else {
            let rows = numbers.iter().map(|number| groups.iter().map(|group| cell(number, group)).collect());
            table(text, &names, numbers.iter().zip(rows))?;
        }
    }
    Ok(())
}

fn table<N: fmt::Display>(
    text: &mut String,
    head: &[String],
    rows: impl Iterator<Item = (N, Vec<String>)>,
) -> anyhow::Result<()> {
    writeln!(text, "| | {} |\n|---{}|", head.join(" | "), "|---".repeat(head.len()))?;
    for (name, cells) in rows {
        writeln!(text, "| {name} | {} |", cells.join(" | "))?;
    }
    Ok(())
}

/// Groups the runs with the same words, with their numbers.
fn groups(runs: &[Map<String, Value>]) -> Vec<(String, BTreeMap<String, Samples>)> {
    let mut groups: Vec<(String, BTreeMap<String, Samples>)> = Vec::new();
    for run in runs {
        let words: Vec<&str> = run.values().filter_map(Value::as_str).collect();
        let name = words.join(", ");
        let at = groups.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            groups.push((name, BTreeMap::new()));
            groups.len() - 1
        });
        for (field, number) in run.iter().filter_map(|(field, value)| Some((field, value.as_f64()?))) {
            groups[at].1.entry(field.clone()).or_default().push(number);
        }
    }
    groups
}

/// Returns the size of the world.
fn size(left: &Left) -> String {
    let of = |name: &str| left.settings.get(name).and_then(Value::as_u64);
    let what = of("OBJECTS").map(|objects| format!("{} objects", grouped(objects)));
    let what = what.or_else(|| of("FAMILIES").map(|families| format!("{families} families")));
    let rounds = of("ROUNDS").map(|rounds| format!("{rounds} round{}", if rounds == 1 { "" } else { "s" }));
    let in_flight = of("IN_FLIGHT").map(|requests| format!("{requests} in flight"));
    what.into_iter().chain(in_flight).chain(rounds).collect::<Vec<_>>().join(", ")
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with three significant digits, and with its spread if it has one.
fn shown([median, least, most]: [f64; 3]) -> String {
    let digits = |figure: f64| match figure.abs() {
        large if large >= 1e3 => grouped(figure.round() as u64),
        large if large >= 100.0 => format!("{figure:.0}"),
        large if large >= 10.0 => format!("{figure:.1}"),
        large if large >= 1.0 || large == 0.0 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    };
    // The values agree in all shown digits: there was one round, or the number is a parameter.
    if least.total_cmp(&most).is_eq() {
        digits(median)
    } else {
        format!("{} ({}–{})", digits(median), digits(least), digits(most))
    }
}

#[cfg(test)]
mod tests {
    use super::{document, shown};
    use serde_json::json;
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_page_is_what_the_figures_beside_it_say() -> anyhow::Result<()> {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let page = fs::read_to_string(docs.join("performance.md"))?;
        let written = document(&docs.join("performance"))?;
        assert!(page == written, "cargo run -p tests --bin performance -- docs/performance");
        Ok(())
    }

    #[test]
    fn digits_that_count() {
        assert_eq!(shown([1_234_567.0; 3]), "1 234 567");
        assert_eq!(shown([0.0123, 0.01, 12.34]), "0.012 (0.010–12.3)");
    }

    #[test]
    fn a_budget_is_kept_or_short_or_not_measured() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let figure = |id: &str, median: f64| json!({ "budget": id, "median": median, "least": median, "most": 2.0 });
        let report = json!({
            "bench": "cascade", "settings": { "OBJECTS": 10_000, "ROUNDS": 3 },
            "machine": { "processor": "one", "cores": 2, "memoryMiB": 4096 },
            "figures": [figure("rate-floor", 1.04), figure("rate-upstream", 1.5)],
            "runs": [{ "contender": "ours", "rate": 3.0, "beside": { "p99": 5 } }, { "contender": "ours", "rate": 4.0 }],
        });
        fs::write(directory.path().join("cascade.json"), report.to_string())?;
        fs::write(
            directory.path().join("graph.json"),
            json!({ "bench": "graph", "objects": 1_000_006, "bytesPerObject": 155.0, "worstBatchMillis": 3.0 })
                .to_string(),
        )?;
        fs::write(directory.path().join("rate-upstream.md"), "The machine is small.\n")?;
        fs::write(directory.path().join("rate-floor.md"), "Only just.\n")?;
        let text = document(directory.path())?;
        for line in [
            "| cascade | one | 2 | 4.0 GiB | unknown | unknown | unknown | unknown |",
            "| background cascade, objects/s | 10 000 objects, 3 rounds | 1.04 (1.04–2.00) × floor | ≥ 1 | kept |",
            "| background cascade, objects/s | 10 000 objects, 3 rounds | 1.50 (1.50–2.00) × upstream | ≥ 1.6 | **short** |",
            "| graph's memory, 1 000 000 objects | 1 000 006 objects | 148 MiB | ≤ 250 | kept |",
            "| lease plane | | not measured | ≥ 100000 leases/s | |",
            "  The machine is small.",
            "* **background cascade, objects/s**",
            "  Only just.",
            "| beside.p99 | 5.00 |",
            "| rate | 3.50 (3.00–4.00) |",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        assert!(!text.contains(&directory.path().display().to_string()));
        fs::write(directory.path().join("other.json"), "{}")?;
        document(directory.path()).expect_err("a file of no benchmark");
        Ok(())
    }
}
