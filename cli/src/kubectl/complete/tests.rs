use super::*;
use crate::kubectl::questions;

/// Returns the completion for the words of a line.
fn fitting(line: &str) -> Wanted {
    let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
    let mut program = Asking::augment_args(questions());
    program.build();
    let (current, before) = words.split_last().unwrap();
    let line = ordered(before.iter().cloned(), &questions()).unwrap_or_else(|_| before.to_vec());
    wanted(innermost(&program, &line), before.last().and_then(|word| word.to_str()), current.to_str().unwrap())
}

fn words(line: &str) -> Vec<String> {
    let Wanted::These(candidates) = fitting(line) else { panic!("{line}: {:?}", fitting(line)) };
    let current = line.rsplit(' ').next().unwrap();
    text(candidates, current).lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

#[test]
fn commands_flags_and_values_are_offered() {
    assert_eq!(words("p o"), ["orphans", "owners", ":4"]);
    assert_eq!(words("p -n stuck o"), ["orphans", "owners", ":4"]);
    assert_eq!(words("p plan "), ["delete", "help", ":4"]);
    assert_eq!(words("p -n shop plan d"), ["delete", ":4"]);
    assert_eq!(words("p tree --no-"), ["--no-fold", "--no-headers", "--no-status", ":4"]);
    assert_eq!(words("p --conte"), ["--context", ":4"]);
    assert_eq!(words("p tree cm/a -o m"), ["mermaid", ":4"]);
    assert_eq!(words("p tree --output=js"), ["--output=json", "--output=jsonpath=", ":4"]);
    assert_eq!(words("p delete cm/a --cascade f"), ["foreground", ":4"]);
    assert_eq!(words("p completion z"), ["zsh", ":4"]);
    assert_eq!(words("p decisions "), [":4"]);
    assert_eq!(words("p nonsense --"), words("p --"));
}

#[test]
fn what_lives_elsewhere_is_looked_up() {
    let live = |what, prefix: &str| Wanted::Live(what, prefix.to_owned());
    for (line, expected) in [
        ("p tree dep", live(Live::Objects, "")),
        ("p tree --up pod/", live(Live::Objects, "")),
        ("p -n shop plan delete pods ", live(Live::Objects, "")),
        ("p path cm/a ", live(Live::Objects, "")),
        ("p release pau", live(Live::Guards, "")),
        ("p release pause/a gate/", live(Live::Guards, "")),
        ("p approve dep", live(Live::Roots, "")),
        ("p protect -k dep", live(Live::Types, "")),
        ("p protect --owner=deploy/", live(Live::Objects, "--owner=")),
        ("p -n sh", live(Live::Namespaces, "")),
        ("p tree cm/a --namespace=sh", live(Live::Namespaces, "--namespace=")),
        ("p why --context ", live(Live::Contexts, "")),
        ("p tree --kubeconfig ", Wanted::Files),
        ("p plan delete -f ", Wanted::Files),
    ] {
        assert_eq!(fitting(line), expected, "{line}");
    }
    let line: Vec<OsString> = "p tree -n shop --context x deploy".split(' ').map(Into::into).collect();
    let (asking, named) = context(&line, questions()).unwrap();
    assert_eq!((asking.namespace.as_deref(), asking.connection.context.as_deref()), (Some("shop"), Some("x")));
    assert_eq!(named, ["deploy"]);
}

#[test]
fn the_line_of_each_command_has_a_connection() {
    fn walk(command: &Command, path: &str) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            let path = format!("{path} {}", below.get_name());
            let line = |more: &str| format!("{path}{more}").split(' ').map(OsString::from).collect::<Vec<_>>();
            for (id, flag) in [("all_namespaces", ""), ("namespace", " -n shop"), ("context", " --context x")] {
                if flag.is_empty() || below.get_arguments().any(|has| has.get_id() == id) {
                    let (asking, _) = context(&line(flag), crate::args::command()).unwrap();
                    let is = (asking.namespace.as_deref() == Some("shop"), asking.connection.context.is_some());
                    let expected = (id == "namespace", id == "context");
                    assert_eq!(is, expected, "{path}{flag}");
                }
            }
            walk(below, &path);
        }
    }
    walk(&crate::args::command(), "p");
}
