//! Tests of errors about flags and files that cannot be used: one sentence that names them, and one code for all
//! commands.

use crate::process::{output, ownergraph, plugin};
use std::collections::BTreeMap;
use std::process::Output;
use tokio::net::TcpListener;

async fn run(arguments: &[&str]) -> Output {
    output(&mut ownergraph(arguments)).await
}

/// The one line on stderr.
fn sentence(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    assert!(matches!(lines.as_slice(), [line] if line.starts_with("ownergraph: ")), "{text}");
    assert!(output.stdout.is_empty(), "{output:?}");
    text
}

#[tokio::test]
async fn bad_flags_are_named_and_end_with_one() {
    let cases: [(&[&str], &str); 7] = [
        (&["demo", "--objects", "none"], "--objects"),
        (&["demo", "--objects", "0"], "--objects"),
        (&["demo", "--nonsense"], "--nonsense"),
        (&["collect", "--mode", "destroy"], "--mode"),
        (&["collect", "--ignore-resources", "Pods"], "RESOURCE.GROUP"),
        (&["collect", "--listen", "localhost"], "--listen"),
        (&["sandbox", "--listen", "8080"], "--listen"),
    ];
    for (arguments, part) in cases {
        let output = run(arguments).await;
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
}

#[tokio::test]
async fn flags_before_a_command_count_as_its_own() {
    let cases: [(&[&str], &str); 8] = [
        (&["destroy"], "destroy"),
        (&["-n", "stuck", "collect"], "unexpected argument '-n'"),
        (&["-n", "collect", "stuck", "--nonsense"], "--nonsense"),
        (&["--kubeconfig", "/nonexistent/kubeconfig", "collect"], "/nonexistent/kubeconfig"),
        (&["--kubeconfig", "/nonexistent/kubeconfig", "-v=6", "stuck"], "/nonexistent/kubeconfig"),
        (&["--frob", "check"], "--frob"),
        (&["-o", "table", "crds"], "unexpected argument '-o'"),
        (&["-A", "stuck", "--older-than", "5"], "expected a duration such as 90s, 1h30m or 2d"),
    ];
    for (arguments, part) in cases {
        let output = run(arguments).await;
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
}

#[tokio::test]
async fn flags_that_do_not_fit_and_files_that_cannot_be_used_get_one_sentence_and_one() {
    let missing = "/nonexistent/kubeconfig";
    let cases: [(&[&str], &str); 7] = [
        (&["collect", "--kubeconfig", missing], missing),
        (&["collect"], "no access to an API server"),
        (&["collect", "--admin-listen", "0.0.0.0:0"], "--admin-listen 0.0.0.0:0 is not a loopback address"),
        (&["collect", "--listen", "127.0.0.1:7451"], "--listen and --admin-listen are both 127.0.0.1:7451"),
        (&["sandbox", "--listen", "0.0.0.0:0"], "--insecure"),
        (&["sandbox", "--write-kubeconfig", missing], missing),
        (&["demo", "--log-level", "info,="], "info,="),
    ];
    for (arguments, part) in cases {
        let output = run(arguments).await;
        let text = sentence(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
}

#[tokio::test]
async fn flags_that_would_be_ignored_or_match_nothing_are_refused() {
    let pause = ["pause", "--direct", "--all", "--for", "1m", "--reason", "r"];
    let cases: [(&[&str], &str); 13] = [
        (&pause, "--direct only reads; this command needs a graph service"),
        (&["resume", "--all", "--direct"], "--direct only reads"),
        (&["status", "--direct"], "--direct only reads"),
        (&["export", "--snapshot", "x.zst", "-n", "shop"], "cannot be used with"),
        (&["export", "--snapshot", "x.zst", "-A"], "cannot be used with"),
        (&["export", "--snapshot", "-"], "a snapshot is not written to standard output: name a file"),
        (&["stuck", "-l", "a=b=c"], "\"b=c\" is not a valid label value"),
        (&["tree", "cm/a", "--kinds", "["], "expected a pattern such as Pod"),
        (&["tree", "cm/a", "--kinds", ","], "expected a pattern such as Pod"),
        (&["tree", "cm/a", "--api-groups", "!"], "expected a pattern such as Pod"),
        (&["stuck", "-n", "Bad NS"], "invalid value 'Bad NS' for '--namespace"),
        (&["pause", "-n", "Bad NS", "--for", "1m", "--reason", "r"], "invalid value 'Bad NS' for '--namespace"),
        (&["stuck", "-o", "csv"], "html, jsonpath="),
    ];
    for (arguments, part) in cases {
        let output = run(arguments).await;
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains(part) && output.stdout.is_empty(), "{arguments:?}: {text}");
    }
}

#[tokio::test]
async fn a_variable_is_no_part_of_the_usage_and_an_empty_one_is_not_set() {
    let mut usage = ownergraph(&["tree"]);
    let usage = output(usage.env("OWNERGRAPH_SERVER", "127.0.0.1:1").env("OWNERGRAPH_CONTEXT", "x")).await;
    let text = String::from_utf8_lossy(&usage.stderr);
    assert!(text.contains("Usage: ownergraph tree <TYPE/NAME>") && !text.contains("--server"), "{text}");
    let wrong = output(ownergraph(&["status"]).env("OWNERGRAPH_INSECURE", "maybe")).await;
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("'maybe'"), "{wrong:?}");
    let empty = output(ownergraph(&["status"]).env("OWNERGRAPH_SERVER", "")).await;
    let text = String::from_utf8_lossy(&empty.stderr);
    assert!(text.contains("no graph service answers at 127.0.0.1:7450") || empty.status.success(), "{text}");
}

#[tokio::test]
async fn versions_are_printed_before_what_failed() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    sandbox::write_kubeconfig(&kubeconfig, "127.0.0.1:1".parse().unwrap()).unwrap();
    let down = run(&["version", "--server", "127.0.0.1:1", "--kubeconfig", kubeconfig.to_str().unwrap()]).await;
    let (shown, text) = (String::from_utf8_lossy(&down.stdout), String::from_utf8_lossy(&down.stderr));
    assert!(down.status.code() == Some(1) && shown.lines().count() == 2 && shown.starts_with("client "), "{down:?}");
    assert!(text.starts_with("note: no graph service can be reached: 127.0.0.1:1 "), "{text}");
    assert!(text.contains("\nerror: http://127.0.0.1:1") && text.contains(" cannot be reached: "), "{text}");
    assert!(!text.contains("ServiceError") && !text.contains("(Connect)"), "{text}");
}

#[tokio::test]
async fn a_port_in_use_is_named_and_ends_with_one() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    sandbox::write_kubeconfig(&kubeconfig, taken.local_addr().unwrap()).unwrap();
    let kubeconfig = kubeconfig.to_str().unwrap();
    let cases: [(&[&str], &str); 3] = [
        (&["sandbox", "--listen", &address], "--listen"),
        (
            &["collect", "--kubeconfig", kubeconfig, "--admin-listen", &address, "--listen", "127.0.0.1:0"],
            "--admin-listen",
        ),
        (&["collect", "--kubeconfig", kubeconfig, "--listen", &address], "--listen"),
    ];
    for (arguments, flag) in cases {
        let output = run(arguments).await;
        let text = sentence(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains(&format!("cannot listen on {flag} {address}: the port is in use")), "{text}");
    }
}

#[tokio::test]
async fn help_shows_examples_and_exit_codes_under_the_name_that_was_called() {
    for arguments in
        [&["--help"][..], &["demo", "--help"], &["collect", "--help"], &["pause", "--help"], &["crds", "-h"]]
    {
        for (mut command, name) in [(ownergraph(arguments), "ownergraph"), (plugin(arguments), "kubectl ownergraph")] {
            let output = output(&mut command).await;
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success());
            assert!(
                text.contains(&format!("Usage: {name} ")) && text.contains(&format!("Examples:\n  {name} ")),
                "{text}"
            );
            assert!(text.contains("Exit codes:\n  0  "), "{text}");
        }
    }
    let version = run(&["--version"]).await;
    assert_eq!(String::from_utf8_lossy(&version.stdout), format!("ownergraph {}\n", env!("CARGO_PKG_VERSION")));
    // Without a cluster, and without a file that leads to one.
    let client = output(ownergraph(&["version", "--client"]).env_clear()).await;
    let text = String::from_utf8_lossy(&client.stdout);
    assert!(text.starts_with(&format!("client   {} (commit ", env!("CARGO_PKG_VERSION"))), "{text}");
}

#[tokio::test]
async fn old_names_of_flags_are_taken_and_not_shown() {
    let missing = "/nonexistent/kubeconfig";
    for old in [&["try", "--within", "1s"][..], &["collect", "--elect", "--tls-ca", missing, "--tls-server-name", "x"]]
    {
        let text = run(&[old, &["--kubeconfig", missing]].concat()).await.stderr;
        assert!(String::from_utf8_lossy(&text).contains(missing), "{old:?}: {}", String::from_utf8_lossy(&text));
        let help = run(&[old[0], "--help"]).await.stdout;
        assert!(!String::from_utf8_lossy(&help).contains("--within"), "{old:?}");
    }
}

#[tokio::test]
async fn nothing_is_deleted_without_a_digest_if_stdin_is_not_a_terminal() {
    for arguments in [&["delete", "cm/root"][..], &["delete", "cm/root", "--yes"], &["-n", "a", "delete", "-y", "cm/b"]]
    {
        let refused = output(&mut plugin(arguments)).await;
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && text.contains("give --confirm=DIGEST"), "{arguments:?}: {text}");
    }
}

#[tokio::test]
async fn the_plugin_completes_and_says_how_it_is_called() {
    for shell in ["bash", "zsh", "fish"] {
        let script = output(&mut plugin(&["completion", shell])).await;
        let text = String::from_utf8(script.stdout).unwrap();
        assert!(
            script.status.success() && text.contains("kubectl-ownergraph") && text.contains("why"),
            "{shell}: {text}"
        );
    }
    let help = output(&mut plugin(&["plan", "delete", "--help"])).await;
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(text.contains("Usage: kubectl ownergraph plan delete") && text.contains("Exit codes:\n  0    "), "{text}");
    for command in
        ["tree", "owners", "path", "why", "delete", "stuck", "check", "orphans", "cycles", "decisions", "queue"]
    {
        let help = output(&mut plugin(&[command, "--help"])).await;
        let text = String::from_utf8(help.stdout).unwrap();
        let flags = ["--context", "--as-group", "--token", "--server", "--request-timeout", "--output"];
        assert!(flags.iter().all(|flag| text.contains(flag)), "{command}: {text}");
    }
}

#[tokio::test]
async fn the_manual_has_a_page_for_each_program_and_command_and_each_run_writes_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let mut written = Vec::new();
    for into in ["first", "second"].map(|name| directory.path().join(name)) {
        let ended = run(&["man", into.to_str().unwrap()]).await;
        assert!(ended.status.success() && ended.stdout.is_empty(), "{ended:?}");
        let pages = std::fs::read_dir(into).unwrap().map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap())
        });
        written.push(pages.collect::<BTreeMap<_, _>>());
    }
    assert_eq!(written[0], written[1]);
    let pages = &written[0];
    for name in ["ownergraph", "ownergraph-plan-delete", "ownergraph-collect", "graph-service", "executor-service"] {
        assert!(pages.contains_key(&format!("{name}.1")), "{:?}", pages.keys());
    }
    for (name, page) in pages {
        assert!(page.contains(&format!(".TH {} 1", name.trim_end_matches(".1"))), "{name}: {page}");
    }
    let why = &pages["ownergraph-why.1"];
    let examples = ".SH EXAMPLES\n.nf\n  ownergraph why pod/web\\-1 \\-n shop ";
    assert!(why.contains(examples) && why.contains(".SH \"EXIT CODES\"\n.nf\n  0    fine"), "{why}");
    assert!(!pages.contains_key("ownergraph-man.1") && !pages.contains_key("ownergraph-help.1"));
}
