//! The rules of the tree that have no exception.

mod arrows;

use arrows::{Arrows, Modules, circle};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};
use std::process::Command;
use tests::conformance::catalogue;
use tests::scenarios;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is below the root").to_owned()
}

/// The crates of which the command line consists.
const PRODUCT: &[&str] = &[
    "ownergraph-engine",
    "executor-service",
    "graph-service",
    "kube-api",
    "ownergraph-proto",
    "recording",
    "runtime",
    "ownergraph-sandbox",
];

/// The crates that each of our crates may use. Arrows point to crates that know less.
const MAY_KNOW: [(&str, &[&str]); 13] = [
    ("ownergraph-engine", &[]),
    ("runtime", &["ownergraph-engine"]),
    ("ownergraph-sandbox", &["ownergraph-engine"]),
    ("healthcheck", &[]),
    ("kube-api", &["ownergraph-engine"]),
    ("ownergraph-proto", &["ownergraph-engine"]),
    ("recording", &["ownergraph-engine"]),
    ("graph-service", &["ownergraph-engine", "kube-api", "ownergraph-proto", "recording", "runtime"]),
    ("executor-service", &["ownergraph-engine", "kube-api", "ownergraph-proto", "runtime"]),
    ("policy-subscriber", &["ownergraph-proto"]),
    ("cli", PRODUCT),
    ("fuzz", &["tests"]),
    ("tests", PRODUCT),
];

#[test]
fn crates_know_only_what_they_may() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let allowed: BTreeMap<&str, &[&str]> = MAY_KNOW.into();
    let mut seen = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let known = allowed.get(name).unwrap_or_else(|| panic!("crate {name} has no line in MAY_KNOW"));
        seen.push(name);
        for dependency in package["dependencies"].as_array().unwrap() {
            let is_optional = dependency["optional"].as_bool() == Some(true);
            let dependency = dependency["name"].as_str().unwrap();
            let ours = allowed.contains_key(dependency);
            assert!(!ours || dependency == name || known.contains(&dependency), "{name} must not know {dependency}");
            assert!(
                // Recordings need the inputs as data. The feature is off in all other builds of the engine.
                name != "ownergraph-engine" || (dependency == "serde" && is_optional),
                "the engine depends on nothing, but on {dependency}"
            );
        }
    }
    seen.sort_unstable();
    let mut all: Vec<&str> = allowed.into_keys().collect();
    all.sort_unstable();
    assert_eq!(seen, all);
    let engine = fs::read_to_string(root().join("engine/src/lib.rs")).unwrap();
    assert!(engine.contains("#![no_std]"), "the engine has no clock, no thread and no socket to reach for");
}

/// The modules that each module of a crate may use, among the modules in the crate's root.
const ARROWS: &str = include_str!("arrows.txt");

/// Parents whose modules are one unit: the actors of the simulator change one world together.
const ONE_PIECE: [(&str, &str); 1] = [("tests", "sim")];

/// Parses the table of [`ARROWS`]: crates, each followed by its modules and the modules that they may use.
fn allowed_arrows() -> BTreeMap<&'static str, Arrows> {
    let mut allowed: BTreeMap<&str, Arrows> = BTreeMap::new();
    let mut of = "";
    for line in ARROWS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.split_once(':') {
            None => {
                of = line;
                allowed.entry(of).or_default();
            }
            Some((module, known)) => {
                let known = known.split_whitespace().map(str::to_owned).collect();
                allowed.entry(of).or_default().insert(module.trim().to_owned(), known);
            }
        }
    }
    allowed
}

#[test]
fn modules_know_only_what_they_may_and_no_arrows_make_a_circle() {
    let allowed = allowed_arrows();
    let mut wrong = Vec::new();
    for of in [
        "engine",
        "kube-api",
        "proto",
        "recording",
        "runtime",
        "graph-service",
        "executor-service",
        "sandbox",
        "cli",
        "healthcheck",
        "tests",
    ] {
        let modules = Modules::read(&root().join(of).join("src"));
        for (parent, arrows) in modules.arrows() {
            if let Some(circle) = circle(&arrows).filter(|_| !ONE_PIECE.contains(&(of, parent.join("::").as_str()))) {
                wrong.push(format!("{of} {}: the circle {}", parent.join("::"), circle.join(" -> ")));
            }
            if !parent.is_empty() {
                continue;
            }
            let none = Arrows::new();
            let may = allowed.get(of).unwrap_or(&none);
            for module in arrows.keys().chain(may.keys()).collect::<BTreeSet<_>>() {
                let (is, may) = (arrows.get(module), may.get(module));
                if is != may {
                    let known = is.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ");
                    wrong.push(format!("{of}: arrows.txt has another line for `  {module}: {known}`"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_planted_circle_is_found() {
    let path = |text: &str| text.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let sources = [
        ("a", "use crate::b::Thing; mod x; mod y;"),
        ("b", "fn f() { crate::c::g(); } #[cfg(test)] mod tests { use crate::a; }"),
        ("c", "pub(crate) fn g() {}"),
        ("a::x", "use super::y::Y;"),
        ("a::y", "pub(super) struct Y;"),
    ];
    let with = |more: &[(&str, &str)]| {
        let mut modules = Modules::default();
        for (module, source) in sources.iter().chain(more) {
            modules.source(&path(module), source);
        }
        modules.arrows().into_values().filter_map(|arrows| circle(&arrows)).collect::<Vec<_>>()
    };
    assert_eq!(with(&[]), Vec::<Vec<String>>::new());
    assert_eq!(with(&[("c", "use crate::{a, b};")]), [["a", "b", "c", "a"]]);
    assert_eq!(with(&[("c", "fn h(_: crate::b::Thing) {}")]), [["b", "c", "b"]]);
    assert_eq!(with(&[("a::y", "use super::x as other;")]), [["x", "y", "x"]]);
    assert_eq!(with(&[("", "mod a; pub use a::x::X as Y;"), ("c", "use crate::Y;")]), [["a", "b", "c", "a"]]);
}

/// Returns the text of ARCHITECTURE.md between these two texts.
fn entry_points() -> String {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is in the tree");
    let (_, rest) = text.split_once("## Entry points").expect("a section");
    rest.split_once("\n## ").expect("another section after it").0.to_owned()
}

#[test]
fn each_entry_point_stands_where_it_says() {
    let text = entry_points();
    let numbered = |line: &&str| line.split_once(". `").is_some_and(|(number, _)| number.parse::<u8>().is_ok());
    let mut seen = 0;
    for line in text.lines().filter(numbered) {
        let [_, file, _, function, ..] = line.split('`').collect::<Vec<_>>()[..] else {
            panic!("a file and a function: {line}")
        };
        let source = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let declares = |line: &str| {
            line.split_once(&format!("fn {function}")).is_some_and(|(_, rest)| rest.starts_with(['(', '<']))
        };
        assert!(source.lines().any(declares), "{file} has no function {function}");
        seen += 1;
    }
    assert_eq!(seen, 10, "the steps from a watch event to a report");
}

/// A reader who knows upstream's collector searches the code for its names.
#[test]
fn every_upstream_term_of_the_glossary_is_in_the_code() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is in the tree");
    let (_, table) = text.split_once("| Upstream |").expect("the glossary begins with upstream");
    let (table, _) = table.split_once("\n\n").expect("a table ends");
    let mut sources = Vec::new();
    for program in ["engine", "executor-service", "graph-service"] {
        files(&root().join(program).join("src"), &mut sources);
    }
    let code: String = sources.iter().filter_map(|source| fs::read_to_string(source).ok()).collect();
    let upstream = table.lines().skip(2).filter_map(|row| row.split('|').nth(1));
    let terms: Vec<&str> = upstream.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert!(terms.len() > 15, "the terms in code: {terms:?}");
    let missing: Vec<&&str> = terms.iter().filter(|term| !code.contains(**term)).collect();
    assert!(missing.is_empty(), "no comment of the code has these terms of the glossary: {missing:?}");
}

/// The targets of the links of a document.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("](").filter_map(|(at, begin)| text[at + begin.len()..].split(')').next())
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut found = Vec::new();
    files(&root(), &mut found);
    let mut seen = 0;
    for path in found.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "md")) {
        let text = fs::read_to_string(&path).unwrap();
        for link in links(&text) {
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || link.contains("://") || !(file.ends_with(".md") || file.contains('/')) {
                continue;
            }
            let target = path.parent().expect("a file is in a directory").join(file);
            assert!(target.exists(), "{}: {link} leads nowhere", path.display());
            seen += 1;
        }
    }
    assert!(seen > 50, "the walk found {seen} links");
}

/// Returns the paths in backticks that name nothing in the tree. A name without a directory may be in any directory.
/// Builds make the files of `target`.
fn lost_paths(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    files(&root(), &mut found);
    let exists = |path: &str| {
        if path.contains('/') { root().join(path).exists() } else { found.iter().any(|file| file.ends_with(path)) }
    };
    let is_path = |word: &str| {
        let is_name = !word.starts_with('.') && ENDINGS.iter().any(|ending| word.ends_with(ending));
        let is_plain = word.chars().all(|part| part.is_ascii_alphanumeric() || "/._-".contains(part));
        is_plain && (is_name || word.contains('/')) && !word.starts_with("target/")
    };
    let prose = text.split("```").step_by(2);
    let quoted = prose.flat_map(|prose| prose.split('`').zip([false, true].into_iter().cycle()));
    let quoted = quoted.filter_map(|(text, is_quoted)| is_quoted.then_some(text));
    let words = quoted.filter_map(|quoted| quoted.split_whitespace().next());
    words.filter(|&word| is_path(word) && !exists(word)).collect()
}

#[test]
fn paths_in_the_recipes_lead_somewhere() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("it is in the tree");
    assert_eq!(lost_paths(&text), [""; 0]);
    let planted =
        "`tests/tests`, `.ci/run fast`, `lib.rs`, `.proto`, `target/x`; `engine/src/gone.rs all`, `gone.proto`";
    assert_eq!(lost_paths(planted), ["engine/src/gone.rs", "gone.proto"]);
}

/// Lines of code and of tables cannot be broken.
#[test]
fn lines_of_documents_have_at_most_120_columns() {
    let mut found = Vec::new();
    files(&root(), &mut found);
    let mut seen = 0;
    for path in found.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "md")) {
        let mut is_code = false;
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            let width = line.chars().count();
            let is_free = is_code || line.trim_start().starts_with('|') || !line.trim().contains(' ');
            assert!(is_free || width <= 120, "{}:{}: {width} columns", path.display(), number + 1);
            seen += 1;
        }
    }
    assert!(seen > 5_000, "the walk found {seen} lines");
}

/// The files of docs/performance are parts of one page. docs/build.sh checks the links of the site.
#[test]
fn the_site_has_every_page() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<PathBuf> = links(&summary).map(|page| docs.join(page).canonicalize().unwrap()).collect();
    let mut found = Vec::new();
    files(&docs, &mut found);
    let pages = found.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let top = ["README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY", "deploy/chart/README"];
    let missing: Vec<PathBuf> = pages
        .filter(|path| !path.starts_with(docs.join("performance")) && !path.ends_with("SUMMARY.md"))
        .chain(top.map(|name| root().join(format!("{name}.md"))))
        .filter(|path| !listed.contains(&path.canonicalize().unwrap()))
        .collect();
    assert!(listed.len() > 50 && missing.is_empty(), "docs/SUMMARY.md lacks {missing:?}");
}

/// The endings of the names of our text files.
const ENDINGS: [&str; 6] = [".rs", ".proto", ".py", ".md", ".toml", ".yaml"];

/// Lists every text file of ours.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("the tree can be read") {
        let path = entry.expect("the tree can be read").path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() {
            if name != "target" && name != ".git" && name != "node_modules" {
                files(&path, found);
            }
        } else if ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
}

#[test]
fn nothing_unfinished_and_nothing_of_one_machine_is_in_the_tree() {
    let mut found = Vec::new();
    files(&root(), &mut found);
    assert!(found.len() > 50, "the walk found the tree");
    // The test spells each word in two halves, so that it does not find itself.
    let banned = [
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["XX", "X:"].concat(),
        ["#[ig", "nore"].concat(),
        ["/ro", "ot/"].concat(),
        ["/wo", "rk/main"].concat(),
        ["/ho", "me/"].concat(),
    ];
    for path in found {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            for word in &banned {
                assert!(!line.contains(word.as_str()), "{}:{}: {word}", path.display(), number + 1);
            }
        }
    }
}

#[test]
fn every_test_of_upstream_is_covered_or_cannot_apply() -> anyhow::Result<()> {
    catalogue::check(&root())?;
    writeln!(stdout(), "{}", catalogue::summary())?;
    Ok(())
}

#[test]
fn every_scenario_is_shown_by_a_test() -> anyhow::Result<()> {
    scenarios::check(&root())
}

/// Wall clocks jump. Deadlines and decisions use a clock that only goes forward. Texts for people may have the date.
const TIME_OF_DAY: [&str; 8] = [
    // The renewal time of the Lease, for its readers.
    "graph-service/src/election/lease.rs",
    // Dates in answers.
    "graph-service/src/clock.rs",
    // Dates of Events.
    "graph-service/src/warnings.rs",
    // Dates of the conditions of guards.
    "graph-service/src/guards/keeper.rs",
    // Dates of spans.
    "runtime/src/traces/data.rs",
    // The variable `now` of policies: a change window is a time of day.
    "graph-service/src/gates/cel.rs",
    // When a recording began.
    "graph-service/src/recorder.rs",
    // Ages as dates, in answers.
    "graph-service/src/grpc",
];

#[test]
fn the_time_of_day_is_only_ever_written_down() {
    let mut found = Vec::new();
    for of in ["engine", "graph-service/src", "executor-service/src", "kube-api/src", "runtime/src"] {
        files(&root().join(of), &mut found);
    }
    for path in found {
        let name = path.strip_prefix(root()).expect("the walk began at the root").display().to_string();
        if name.contains("tests") || TIME_OF_DAY.iter().any(|may| name.starts_with(may)) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for word in ["SystemTime", "Timestamp::now", "UNIX_EPOCH"] {
            assert!(!text.contains(word), "{name}: {word}");
        }
    }
}

#[test]
fn no_module_is_called_like_a_drawer() {
    let mut found = Vec::new();
    files(&root(), &mut found);
    for path in found {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for drawer in ["mod.rs", "utils.rs", "util.rs", "common.rs", "helpers.rs", "types.rs", "misc.rs"] {
            assert_ne!(name, drawer, "{}", path.display());
        }
    }
}

/// Words that name nothing. The first words of a comment name the thing.
const VAGUE: [&str; 2] = ["What ", "It "];

/// Returns the numbers of the lines on which a doc comment begins with a vague word.
fn vague_comments(source: &str) -> Vec<usize> {
    let (mut before, mut vague) = (None, Vec::new());
    for (number, line) in (1..).zip(source.lines().map(str::trim_start)) {
        let marker = ["///", "//!"].into_iter().find(|&marker| line.starts_with(marker));
        let text = marker.and_then(|marker| line.strip_prefix(marker)).unwrap_or_default().trim_start();
        if marker != before && VAGUE.iter().any(|&word| text.starts_with(word)) {
            vague.push(number);
        }
        before = marker;
    }
    vague
}

#[test]
fn doc_comments_begin_with_a_name() {
    let mut found = Vec::new();
    files(&root(), &mut found);
    for path in found.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "rs")) {
        let vague = vague_comments(&fs::read_to_string(&path).unwrap());
        assert!(vague.is_empty(), "{}: the comments of the lines {vague:?} begin with {VAGUE:?}", path.display());
    }
    let planted = "/// What holds.\nfn f() {}\n//! Fine.\n//! It goes on.\n  /// It fails.\n// It is no doc comment.\n";
    assert_eq!(vague_comments(planted), [1, 5]);
}

/// Returns the text literals of a macro's arguments, up to its closing parenthesis.
fn literals(arguments: &str) -> Vec<String> {
    let (mut found, mut depth, mut literal): (Vec<String>, usize, Option<String>) = (Vec::new(), 1, None);
    let mut characters = arguments.chars();
    while let Some(character) = characters.next() {
        match (&mut literal, character) {
            (Some(_), '"') => found.extend(literal.take()),
            (Some(text), '\\') => text.extend(characters.next()),
            (Some(text), other) => text.push(other),
            (None, '"') => literal = Some(String::new()),
            (None, '(') => depth += 1,
            (None, ')') if depth == 1 => break,
            (None, ')') => depth -= 1,
            (None, _) => {}
        }
    }
    found
}

/// The varying parts are in fields, so that lines can be counted, searched and limited by their call site.
#[test]
fn messages_of_the_log_are_constant() {
    let mut found = Vec::new();
    for of in ["graph-service/src", "executor-service/src", "kube-api/src", "runtime/src", "cli/src"] {
        files(&root().join(of), &mut found);
    }
    let mut seen = 0;
    for path in found.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "rs")) {
        let text = fs::read_to_string(&path).unwrap();
        for level in ["trace", "debug", "info", "warn", "error"] {
            let begin = format!("tracing::{level}!(");
            let mut pieces = text.split(&begin);
            // The text before the first macro has none.
            pieces.next();
            for arguments in pieces {
                let Some(message) = literals(arguments).pop() else { continue };
                // Such a field has no name in a line of text. In a line of JSON it repeats the key of the message.
                let fields = arguments.split_once(&message).map_or("", |(before, _)| before);
                let mut names = fields.split(['(', ',']).map(|field| field.trim_start().trim_start_matches(['%', '?']));
                let named =
                    |name: &str| name.split(|end: char| !end.is_alphanumeric() && end != '_').next() == Some("message");
                assert!(!names.any(named), "{}: a field of {message:?} is named message", path.display());
                seen += 1;
                // A name in capitals is a constant.
                let constant = message.replace("{CREDENTIALS_REFUSED}", "").replace("{HOSTILE}", "");
                assert!(!constant.contains('{'), "{}: {message}", path.display());
            }
        }
    }
    assert!(seen > 50, "the walk found {seen} messages");
}
