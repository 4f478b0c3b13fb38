//! Examples and exit codes for the help of each command. A test parses the examples as command lines.

use crate::name;
use clap::Command;

/// The exit codes of a command that has no others.
const EXIT_CODES: &str = "\
Exit codes:
  0    fine, or nothing found
  1    an error, also of a flag or an argument
  2    findings: something is stuck, dangling or in a cycle
  3    refused: the plan is not certain, something is held, or the facts changed
  124  timed out";
/// Commands whose help says no exit codes.
const WITHOUT_CODES: [&str; 4] = ["man", "plan", "completion", "version"];

/// The path of a command, an example without the program's name, and an optional note.
const EXAMPLES: [(&str, &str, &str); 110] = [
    ("", "demo", "see it work, in this process alone"),
    ("", "collect --kubeconfig k8s.yaml", "collect garbage on a cluster"),
    ("", "try --kubeconfig k8s.yaml", "test a collector: create objects, delete their owners, wait"),
    ("", "status", "show the state of the collector"),
    ("", "tree deploy/web -n shop", "show what depends on an object"),
    ("", "why pod/web-1 -n shop", "explain why an object exists, or why it was deleted"),
    ("", "pause --all --for 1h --reason restoring", "hold deletions"),
    ("demo", "demo", ""),
    ("demo", "demo --objects 50000 --executors 4", "a larger cascade"),
    ("demo", "demo --console", "with the web console, until Ctrl-C"),
    ("demo", "demo -o json | jq .acts", "its numbers"),
    ("sandbox", "sandbox", "on a free port, which it prints"),
    ("sandbox", "sandbox --console", "with the web console"),
    (
        "sandbox",
        "sandbox --listen 127.0.0.1:8080 --write-kubeconfig sandbox.yaml",
        "for kubectl --kubeconfig sandbox.yaml",
    ),
    ("collect", "collect", "the current context of KUBECONFIG or ~/.kube/config"),
    ("collect", "collect --context kind-kind --executors 4", ""),
    (
        "collect",
        "collect --mode observe --log-level info,graph_service=debug",
        "make and publish decisions, delete nothing",
    ),
    ("collect", "collect --elect --listen 10.0.0.7:7450 --insecure", "one of several replicas leads"),
    ("try", "try", "1000 ConfigMaps in namespace default"),
    ("try", "try --context kind-kind -n scratch --objects 20000 --timeout 5m", ""),
    ("man", "man /usr/local/share/man/man1", ""),
    ("tree", "tree deploy/web -n shop", ""),
    ("tree", "tree deployments.v1.apps/web --both --no-fold", "owners above, dependents below, no folding"),
    ("tree", "tree deploy/web --depth 2 --kinds 'Pod,*Set'", ""),
    ("tree", "tree deploy/web -w", "continue, and show changes"),
    ("tree", "tree deploy/web -L app.kubernetes.io/version", "with a label as a column"),
    ("tree", "tree deploy/web -o dot | dot -Tsvg", "a picture"),
    ("owners", "owners pod/web-1 -n shop", ""),
    ("owners", "owners pod web-1 -o wide", "with the standing of each reference"),
    ("path", "path pod/web-1 deploy/web -n shop", ""),
    ("path", "path job/nightly-1 cronjob/nightly -o mermaid", ""),
    ("why", "why pod/web-1 -n shop", "the object may be deleted already"),
    ("why", "why ns/shop", "explain what keeps a namespace"),
    ("why", "why pod/web-1 -o jsonpath='{.verdict}'", ""),
    ("plan", "plan delete deploy/web -n shop", ""),
    ("plan delete", "plan delete deploy/web -n shop", ""),
    ("plan delete", "plan delete deploy,cm -l app=web --cascade=foreground", ""),
    ("plan delete", "plan delete jobs -A -l team=a", "in all namespaces"),
    ("plan delete", "plan delete -f manifests/ -o name", "objects that would be deleted, one per line"),
    ("delete", "delete deploy/web -n shop", "shows the plan, and asks for confirmation"),
    (
        "delete",
        "delete deploy/web -n shop --cascade=foreground --confirm=aa26ce0eeb91793f",
        "deletes only if the plan still has this digest",
    ),
    ("delete", "delete deploy/web -n shop --wait --timeout 5m", "returns when it is gone"),
    ("stuck", "stuck -A", ""),
    ("stuck", "stuck -n shop --older-than 30s -o name", ""),
    ("cycles", "cycles -A", ""),
    ("cycles", "cycles -n shop --blocking", "cycles that can stop a foreground deletion"),
    ("orphans", "orphans -A", "number of objects without owner, by kind"),
    ("orphans", "orphans -n shop -o wide", "objects without owner; -o name for scripts"),
    ("orphans", "orphans -n shop --dangling", "objects whose owners are all gone"),
    ("orphans", "orphans -A --lost-owner --older-than 24h", "objects whose owner was created again with another uid"),
    ("check", "check -A", ""),
    ("check", "check -n shop -l app=web -o json | jq .items", ""),
    ("decisions", "decisions -n shop --last 20", ""),
    ("decisions", "decisions -A -f --since 10m --action delete", "continue with new events"),
    ("decisions", "decisions -A --open --verdict held,parked", "decisions that are not carried out yet"),
    ("decisions", "decisions -A -f --sink https://events.example/ --position position", "send them to a receiver"),
    ("decisions", r#"decisions -A -f --cel 'event.target.name.startsWith("web")'"#, ""),
    ("queue", "queue -A", ""),
    ("queue", "queue -n shop --by root", "by the object whose deletion began the cascade"),
    ("progress", "progress deploy/web -n shop", ""),
    ("progress", "progress deploy/web --timeout 5m -o json", ""),
    ("parity", "parity", "the numbers, and the newest disagreements with the other collector"),
    ("parity", "parity --since 1d --class unknown -o wide", "all disagreements of a day that nothing explains"),
    ("parity", "parity -o html > parity.html", "a page with the evidence"),
    ("status", "status", ""),
    ("status", "status --watch", "prints again after each change"),
    ("status", "status --server 127.0.0.1:7450,127.0.0.1:7460 -o json | jq .guards", ""),
    ("pause", "pause --all --for 1h --reason 'restoring from backup'", ""),
    ("pause", "pause -n shop -n payments --for 30m --reason 'what deletes these?' --wait 10s", ""),
    ("pause", "pause --kind pvc --kind databases.example.com --for 24h --reason migration", ""),
    ("pause", "pause -n shop -l app=web --for 1h --reason rollout", "objects with a label"),
    ("pause", "pause -n shop --owner deploy/web --for 1h --reason rollout", "an object and all below it"),
    ("resume", "resume pause-7e5cf8a6", ""),
    ("resume", "resume --all", ""),
    ("protect", "protect -k pvc -n prod --reason 'data stays' prod-data", "never delete these"),
    ("protect", "protect --owner deploy/web -n shop --reason migration --for 2h", "an object and all below it"),
    ("protect", "protect -l tier=critical --namespace-selector env=prod --reason critical", ""),
    ("protect", "protect --preset helm,argocd --reason 'their marks count'", "objects that other tools keep"),
    ("budget", "budget calm --max 500 --per 10m --on-exceeded hold --reason 'no surprises'", "the rest waits"),
    ("budget", "budget breaker --max 10% --per 1h -k cm --on-exceeded pause --reason 'stop a mass deletion'", ""),
    ("budget", "budget prod --max 50 --per 1h -n prod --on-exceeded approve --reason 'ask first'", ""),
    ("approve", "approve", "cascades that wait, with their digests"),
    ("approve", "approve deploy/web -n shop", "shows the cascade, and asks for confirmation"),
    ("approve", "approve deploy/web -n shop --digest aa26ce0eeb91793f", "only if the cascade still has this digest"),
    ("approve", "approve budget/prod", "begins a new window"),
    ("release", "release protection/prod-data", "shows what it holds, and asks for confirmation"),
    ("release", "release pause/pause-7e5cf8a6 protection/prod-data --yes", ""),
    ("release", "release gate/opa --for 10m --reason 'opa is down'", "bypasses the gate for a time"),
    ("release", "release budget/prod", "begins a new window"),
    ("gates", "gates", ""),
    ("gates", "gates -o wide", "with state, end and reason"),
    ("gates", "gates -o json | jq .items", ""),
    ("console", "console", "starts a browser"),
    ("console", "console --read-only --no-browser", "prints the address, and refuses changes"),
    ("console", "console --port 8080 --context kind-kind", "on a port that stays the same"),
    ("crds", "crds | kubectl apply -f -", "once for each cluster"),
    ("export", "export -n shop -o yaml", ""),
    ("export", "export --snapshot shop.zst", "for --from-file"),
    ("export", "export --bundle", "status, metrics, configuration, recording and decisions, for a bug report"),
    ("export", "export --bundle - --max-recording 1GiB > bundle.tar.gz", ""),
    ("export", "export -A -o dot | dot -Tsvg", ""),
    ("completion", "completion bash > /etc/bash_completion.d/ownergraph", ""),
    ("completion", "completion zsh", ""),
    ("replay", "replay /recordings", "how many inputs and decisions, and how it ends"),
    ("replay", "replay /recordings --until 10m --why pod/web-1 -n shop", "why an object stayed, at that time"),
    ("replay", "replay ownergraph-bundle-20260101T120000Z.tar.gz", "the recording of a bug report"),
    ("replay", "replay /recordings --decisions > before.ndjson", "with the present version"),
    ("replay", "replay /recordings --against before.ndjson", "with another one: what it decides otherwise"),
    ("version", "version", ""),
    ("version", "version --client -o json", ""),
];

/// Adds examples and exit codes to the help of each command.
pub(crate) fn with_examples(program: Command) -> Command {
    at(program, "")
}

fn at(command: Command, path: &str) -> Command {
    let lines = || EXAMPLES.iter().filter(|(of, ..)| *of == path);
    let width = lines().map(|(_, line, _)| line.len()).max().unwrap_or(0);
    let line = |(_, line, note): &(&str, &str, &str)| {
        let text = format!("  {} {line:width$}  {note}", name::program());
        format!("{}\n", text.trim_end())
    };
    let codes = match command.get_after_help() {
        Some(codes) => format!("\n{codes}"),
        None if WITHOUT_CODES.contains(&path) => String::new(),
        None => format!("\n{EXIT_CODES}"),
    };
    let examples: String = lines().map(line).collect();
    let command = command.after_help(format!("Examples:\n{examples}{codes}"));
    command.mut_subcommands(|below| {
        let path = format!("{path} {}", below.get_name());
        at(below, path.trim_start())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    /// The words of a line up to a pipe or a file, as a shell reads them.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut quoted) = (vec![String::new()], false);
        for character in line.chars() {
            match character {
                '\'' => quoted = !quoted,
                '|' | '>' if !quoted => break,
                ' ' if !quoted => words.push(String::new()),
                other => words.last_mut().unwrap().push(other),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    fn paths(command: &Command, path: &str, into: &mut Vec<String>) {
        into.push(path.to_owned());
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            paths(below, format!("{path} {}", below.get_name()).trim_start(), into);
        }
    }

    #[test]
    fn each_command_has_examples_that_it_takes() {
        let program = args::command();
        let mut all = Vec::new();
        paths(&program, "", &mut all);
        for path in &all {
            for (_, line, _) in EXAMPLES.iter().filter(|(of, ..)| of == path) {
                assert!(line.starts_with(path.as_str()), "{line:?} is not of {path:?}");
                let line: Vec<String> = std::iter::once("ownergraph".to_owned()).chain(words(line)).collect();
                let read = program.clone().try_get_matches_from(&line);
                assert!(read.is_ok(), "{}", read.unwrap_err());
            }
            let mut command = &program;
            for word in path.split_terminator(' ') {
                command = command.find_subcommand(word).unwrap();
            }
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("\nExamples:\n  ownergraph"), "{help}");
        }
        for (path, line, _) in EXAMPLES {
            assert!(all.iter().any(|known| known == path), "{line:?} is of no command");
        }
    }
}
