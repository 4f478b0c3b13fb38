//! Examples for the help of each command. A test parses them as command lines.

use crate::name;
use clap::Command;

/// The examples of the command at a path, without the program's name, each with an optional note.
const EXAMPLES: [(&str, &[(&str, &str)]); 35] = [
    (
        "",
        &[
            ("demo", "see it work, in this process alone"),
            ("collect --kubeconfig k8s.yaml", "collect garbage on a cluster"),
            ("try --kubeconfig k8s.yaml", "test a collector: create objects, delete their owners, wait"),
            ("status", "show the state of the collector"),
            ("tree deploy/web -n shop", "show what depends on an object"),
            ("why pod/web-1 -n shop", "explain why an object exists, or why it was deleted"),
            ("pause --all --for 1h --reason restoring", "hold deletions"),
        ],
    ),
    (
        "demo",
        &[
            ("demo", ""),
            ("demo --objects 50000 --executors 4", "a larger cascade"),
            ("demo --console", "with the web console, until Ctrl-C"),
            ("demo -o json | jq .acts", "its numbers"),
        ],
    ),
    (
        "sandbox",
        &[
            ("sandbox", "on a free port, which it prints"),
            ("sandbox --console", "with the web console"),
            (
                "sandbox --listen 127.0.0.1:8080 --write-kubeconfig sandbox.yaml",
                "for kubectl --kubeconfig sandbox.yaml",
            ),
        ],
    ),
    (
        "collect",
        &[
            ("collect", "the current context of KUBECONFIG or ~/.kube/config"),
            ("collect --context kind-kind --executors 4", ""),
            (
                "collect --mode observe --log-level info,graph_service=debug",
                "make and publish decisions, delete nothing",
            ),
            ("collect --elect --listen 10.0.0.7:7450 --insecure", "one of several replicas leads"),
        ],
    ),
    (
        "try",
        &[
            ("try", "1000 ConfigMaps in namespace default"),
            ("try --context kind-kind -n scratch --objects 20000 --timeout 5m", ""),
        ],
    ),
    ("man", &[("man /usr/local/share/man/man1", "")]),
    (
        "tree",
        &[
            ("tree deploy/web -n shop", ""),
            ("tree deployments.v1.apps/web --both --no-fold", "owners above, dependents below, no folding"),
            ("tree ns/shop --depth 2 --kinds 'Deployment,*Set'", ""),
            ("tree deploy/web -w", "continue, and show changes"),
            ("tree deploy/web -L app.kubernetes.io/version", "with a label as a column"),
            ("tree deploy/web -o dot | dot -Tsvg", "a picture"),
        ],
    ),
    (
        "owners",
        &[("owners pod/web-1 -n shop", ""), ("owners pod web-1 -o wide", "with the standing of each reference")],
    ),
    ("path", &[("path pod/web-1 deploy/web -n shop", ""), ("path job/nightly-1 cronjob/nightly -o mermaid", "")]),
    (
        "why",
        &[
            ("why pod/web-1 -n shop", "the object may be deleted already"),
            ("why ns/shop", "explain what keeps a namespace"),
            ("why pod/web-1 -o jsonpath='{.verdict}'", ""),
        ],
    ),
    ("plan", &[("plan delete deploy/web -n shop", "")]),
    (
        "plan delete",
        &[
            ("plan delete deploy/web -n shop", ""),
            ("plan delete deploy,cm -l app=web --cascade=foreground", ""),
            ("plan delete jobs -A -l team=a", "in all namespaces"),
            ("plan delete -f manifests/ -o name", "objects that would be deleted, one per line"),
        ],
    ),
    (
        "delete",
        &[
            ("delete deploy/web -n shop", "shows the plan, and asks for confirmation"),
            (
                "delete deploy/web -n shop --cascade=foreground --confirm=aa26ce0eeb91793f",
                "deletes only if the plan still has this digest",
            ),
            ("delete deploy/web -n shop --wait --timeout 5m", "returns when it is gone"),
        ],
    ),
    ("stuck", &[("stuck -A", ""), ("stuck -n shop --older-than 30s -o name", "")]),
    ("cycles", &[("cycles -A", ""), ("cycles -n shop --blocking", "cycles that can stop a foreground deletion")]),
    (
        "orphans",
        &[
            ("orphans -A", "number of objects without owner, by kind"),
            ("orphans -n shop -o wide", "objects without owner; -o name for scripts"),
            ("orphans -n shop --dangling", "objects whose owners are all gone"),
            ("orphans -A --lost-owner --older-than 24h", "objects whose owner was created again with another uid"),
        ],
    ),
    ("check", &[("check -A", ""), ("check -n shop -l app=web -o json | jq .items", "")]),
    (
        "decisions",
        &[
            ("decisions -n shop --last 20", ""),
            ("decisions -A -f --since 10m --action delete", "continue with new events"),
            ("decisions -A --open --verdict held,parked", "decisions that are not carried out yet"),
            ("decisions -A -f --sink https://events.example/ --position position", "send them to a receiver"),
            (r#"decisions -A -f --cel 'event.target.name.startsWith("web")'"#, ""),
        ],
    ),
    ("queue", &[("queue -A", ""), ("queue -n shop --by root", "by the object whose deletion began the cascade")]),
    ("progress", &[("progress deploy/web -n shop", ""), ("progress deploy/web --timeout 5m -o json", "")]),
    (
        "parity",
        &[
            ("parity", "the numbers, and the newest disagreements with the other collector"),
            ("parity --since 1d --class unknown -o wide", "all disagreements of a day that nothing explains"),
            ("parity -o html > parity.html", "a page with the evidence"),
        ],
    ),
    (
        "status",
        &[
            ("status", ""),
            ("status --watch", "prints again after each change"),
            ("status --server 127.0.0.1:7450,127.0.0.1:7460 -o json | jq .pauses", ""),
        ],
    ),
    (
        "pause",
        &[
            ("pause --all --for 1h --reason 'restoring from backup'", ""),
            ("pause -n shop -n payments --for 30m --reason 'what deletes these?' --wait 10s", ""),
            ("pause --kind pvc --kind databases.example.com --for 24h --reason migration", ""),
            ("pause -n shop -l app=web --for 1h --reason rollout", "objects with a label"),
            ("pause -n shop --owner deploy/web --for 1h --reason rollout", "an object and all below it"),
        ],
    ),
    ("resume", &[("resume pause-7e5cf8a6", ""), ("resume --all", "")]),
    (
        "protect",
        &[
            ("protect -k pvc -n prod --reason 'data stays' prod-data", "never delete these"),
            ("protect --owner deploy/web -n shop --reason migration --for 2h", "an object and all below it"),
            ("protect -l tier=critical --namespace-selector env=prod --reason critical", ""),
            ("protect --preset helm,argocd --reason 'their marks count'", "objects that other tools keep"),
        ],
    ),
    (
        "budget",
        &[
            ("budget calm --max 500 --per 10m --on-exceeded hold --reason 'no surprises'", "the rest waits"),
            ("budget breaker --max 10% --per 1h -k cm --on-exceeded pause --reason 'stop a mass deletion'", ""),
            ("budget prod --max 50 --per 1h -n prod --on-exceeded approve --reason 'ask first'", ""),
        ],
    ),
    (
        "approve",
        &[
            ("approve", "cascades that wait, with their digests"),
            ("approve deploy/web -n shop", "shows the cascade, and asks for confirmation"),
            ("approve deploy/web -n shop --digest aa26ce0eeb91793f", "only if the cascade still has this digest"),
            ("approve budget/prod", "begins a new window"),
        ],
    ),
    (
        "release",
        &[
            ("release protection/prod-data", "shows what it holds, and asks for confirmation"),
            ("release pause/pause-7e5cf8a6 protection/prod-data --yes", ""),
            ("release gate/opa --for 10m --reason 'opa is down'", "bypasses the gate for a time"),
            ("release budget/prod", "begins a new window"),
        ],
    ),
    ("gates", &[("gates", ""), ("gates -o wide", "with state, end and reason"), ("gates -o json | jq .items", "")]),
    (
        "console",
        &[
            ("console", "starts a browser"),
            ("console --read-only --no-browser", "prints the address, and refuses changes"),
            ("console --port 8080 --context kind-kind", "on a port that stays the same"),
        ],
    ),
    ("crds", &[("crds | kubectl apply -f -", "once for each cluster")]),
    (
        "export",
        &[
            ("export -n shop -o yaml", ""),
            ("export --snapshot shop.zst", "for --from-file"),
            ("export --bundle", "status, metrics, configuration, recording and decisions, for a bug report"),
            ("export --bundle - --max-recording 1GiB > bundle.tar.gz", ""),
            ("export -A -o dot | dot -Tsvg", ""),
        ],
    ),
    ("completion", &[("completion bash > /etc/bash_completion.d/ownergraph", ""), ("completion zsh", "")]),
    (
        "replay",
        &[
            ("replay /recordings", "how many inputs and decisions, and how it ends"),
            ("replay /recordings --until 10m --why pod/web-1 -n shop", "why an object stayed, at that time"),
            ("replay ownergraph-bundle-20260101T120000Z.tar.gz", "the recording of a bug report"),
            ("replay /recordings --decisions > before.ndjson", "with the present version"),
            ("replay /recordings --against before.ndjson", "with another one: what it decides otherwise"),
        ],
    ),
    ("version", &[("version", ""), ("version --client -o json", "")]),
];

/// Adds the examples to the help of each command.
pub(crate) fn with_examples(program: Command) -> Command {
    at(program, "")
}

fn at(command: Command, path: &str) -> Command {
    let Some((_, lines)) = EXAMPLES.iter().find(|(of, _)| *of == path) else { return command };
    let width = lines.iter().map(|(line, _)| line.len()).max().unwrap_or(0);
    let line = |(line, note): &(&str, &str)| {
        let text = format!("  {} {line:width$}  {note}", name::program());
        format!("{}\n", text.trim_end())
    };
    let behind = command.get_after_help().map(|text| format!("\n{text}")).unwrap_or_default();
    let examples: String = lines.iter().map(line).collect();
    let command = command.after_help(format!("Examples:\n{examples}{behind}"));
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
            let (_, lines) = EXAMPLES.iter().find(|(of, _)| of == path).unwrap_or_else(|| panic!("{path:?} has none"));
            assert!(!lines.is_empty(), "{path:?} has none");
            for (line, _) in *lines {
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
        assert_eq!(all.len(), EXAMPLES.len(), "each of the examples is of a command");
    }
}
