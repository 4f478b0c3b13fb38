//! The questions, answered by a collector on a sandbox and by the plugin's own listing: both must say the same.

use crate::collect::Cluster;
use crate::process::{Http, Running, completer, output, ownergraph, plugin, until};
use serde_json::{Value, json};
use std::net::TcpListener;

/// A sandbox in which `root` owns `first` and `second`, and `first` owns `leaf`. The owner of `stray` never existed.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) collector: Running,
    pub(crate) server: String,
}

/// The result of a run.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl World {
    pub(crate) async fn start() -> World {
        World::with("observe").await
    }

    /// With a collector of this mode.
    pub(crate) async fn with(mode: &str) -> World {
        let cluster = Cluster::start().await;
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = free.local_addr().unwrap().to_string();
        drop(free);
        let (collector, _admin) = cluster.collector(&["--mode", mode, "--listen", &server]).await;
        let root = cluster.api.create("root", &[]).await;
        let first = cluster.api.create("first", &[&root]).await;
        cluster.api.create("second", &[&root]).await;
        cluster.api.create("leaf", &[&first]).await;
        let world = World { cluster, collector, server };
        until("the graph has seen all of it", async || {
            world.ask(&["tree", "cm/root", "--no-status", "-o", "name"]).await.stdout.lines().count() == 4
        })
        .await;
        world
    }

    pub(crate) fn api(&self) -> &Http {
        &self.cluster.api
    }

    pub(crate) async fn run(&self, way: &[&str], arguments: &[&str]) -> Said {
        let all = [arguments, &["--kubeconfig", &self.cluster.kubeconfig], way].concat();
        let output = output(&mut plugin(&all)).await;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    pub(crate) async fn ask(&self, arguments: &[&str]) -> Said {
        self.run(&["--server", &self.server], arguments).await
    }

    async fn ask_here(&self, arguments: &[&str]) -> Said {
        self.run(&["--direct"], arguments).await
    }
}

fn digest(plan: &Said) -> String {
    let line =
        plan.stdout.lines().find_map(|line| line.strip_prefix("digest ")).unwrap_or_else(|| panic!("{}", plan.stderr));
    line.to_owned()
}

#[tokio::test]
async fn the_service_and_the_own_listing_answer_alike() {
    let world = World::start().await;
    let questions: [&[&str]; 7] = [
        &["tree", "configmap/root", "--no-status"],
        &["tree", "configmaps", "root", "--no-status", "-o", "dot"],
        &["owners", "cm/leaf", "--no-status"],
        &["path", "cm/leaf", "cm/root"],
        &["why", "configmap", "first"],
        &["plan", "delete", "cm/root", "--cascade=foreground"],
        &["orphans"],
    ];
    for question in questions {
        let (theirs, ours) = (world.ask(question).await, world.ask_here(question).await);
        assert_eq!((theirs.code, ours.code), (Some(0), Some(0)), "{question:?}: {} {}", theirs.stderr, ours.stderr);
        // The command to run repeats the flags of each.
        let text =
            |said: &Said| said.stdout.lines().filter(|line| !line.starts_with("run ")).collect::<Vec<_>>().join("\n");
        assert_eq!(text(&theirs), text(&ours), "{question:?}");
        assert_eq!(theirs.stderr, "", "{question:?}");
        assert!(
            ours.stderr.starts_with("note: listing ") && ours.stderr.contains(" resource types directly (slow)"),
            "{}",
            ours.stderr
        );
    }
    let tree = world.ask(&["tree", "cm/root"]).await.stdout;
    let lines: Vec<&str> = tree.lines().collect();
    assert!(lines[0].contains("READY") && lines[0].contains("AGE"), "{tree}");
    assert!(lines[2].contains("├─ConfigMap/first") && lines[2].contains("Current"), "{tree}");
    assert!(lines[3].contains("│ └─ConfigMap/leaf") && lines[4].contains("└─ConfigMap/second"), "{tree}");
    assert!(world.ask(&["why", "cm/leaf"]).await.stdout.contains("ConfigMap default/first owns it"));
    assert_eq!(world.collector.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn a_snapshot_answers_as_the_cluster_did_and_can_only_be_read() {
    let world = World::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("world.zst");
    let path = path.to_str().unwrap();
    let taken = world.ask(&["export", "--snapshot", path]).await;
    assert!(taken.code == Some(0) && taken.stdout.is_empty(), "{}", taken.stderr);
    assert!(taken.stderr.contains(" objects of "), "{}", taken.stderr);
    let file = ["--from-file", path, "--kubeconfig", "/nonexistent"];
    let ask_file = async |arguments: &[&str]| {
        let output = output(&mut plugin(&[&file, arguments].concat())).await;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    };
    let questions: [&[&str]; 8] = [
        &["tree", "configmap/root", "--no-status"],
        &["tree", "cm/first", "--both", "--no-status"],
        &["owners", "cm/leaf", "--no-status", "-o", "wide"],
        &["path", "cm/leaf", "cm/root"],
        &["why", "configmap", "first"],
        &["check", "-A"],
        &["cycles"],
        &["orphans"],
    ];
    for question in questions {
        let (theirs, ours) = (world.ask(question).await, ask_file(question).await);
        assert_eq!((&theirs.stdout, theirs.code), (&ours.stdout, ours.code), "{question:?}: {}", ours.stderr);
        assert!(ours.stderr.contains("s ago): ") && !ours.stderr.contains("listing"), "{}", ours.stderr);
    }
    let version = ask_file(&["version"]).await;
    assert_eq!(version.code, Some(0), "{}", version.stderr);
    assert!(version.stdout.contains("\nserver   none (snapshot)\n"), "{}", version.stdout);
    let never = ask_file(&["why", "cm/missing"]).await.stdout;
    assert!(never.contains("the snapshot does not contain it"), "{never}");
    let plan = ["plan", "delete", "cm/root"];
    let (theirs, ours) = (world.ask(&plan).await, ask_file(&plan).await);
    assert_eq!((digest(&theirs), ours.code), (digest(&ours), Some(3)), "a plan from a file is never certain");
    let mut elsewhere = plugin(&[&file[..], &["tree", "cm/root", "--no-status"]].concat());
    let said = output(elsewhere.env("OWNERGRAPH_SERVER", "127.0.0.1:1")).await;
    assert_eq!(said.status.code(), Some(0), "a variable does not hide a file: {said:?}");
    for (arguments, part) in [
        (&["delete", "cm/root", "--confirm", "x"][..], "--from-file only reads"),
        (&["decisions"], "--from-file only reads"),
        (&["status"], "--from-file has only a graph"),
        (&["tree", "cm/missing"], "is not known"),
        (&["tree", "cm/root", "--direct"], "cannot be used with"),
    ] {
        let said = ask_file(arguments).await;
        assert!(said.code == Some(1) && said.stderr.contains(part), "{arguments:?}: {}", said.stderr);
    }
    std::fs::write(path, "no snapshot").unwrap();
    let foreign = ask_file(&["tree", "cm/root"]).await;
    assert!(foreign.code == Some(1) && foreign.stderr.contains("is not a usable snapshot"), "{}", foreign.stderr);
}

#[tokio::test]
async fn a_plan_is_carried_out_as_it_was_or_not_at_all() {
    let world = World::start().await;
    let plan = ["plan", "delete", "cm/root"];
    let delete = |digest: String| ["delete".to_owned(), "cm/root".to_owned(), format!("--confirm={digest}")];
    let old = digest(&world.ask(&plan).await);
    let first = world.api().get("first").await.unwrap();
    let uid = first["metadata"]["uid"].clone();
    let owner = serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "first", "uid": uid });
    world.api().create("late", &[&owner]).await;

    let arguments = delete(old);
    let refused = world.ask(&arguments.each_ref().map(String::as_str)).await;
    assert_eq!(refused.code, Some(3), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("the plan has changed")
            && refused.stderr.contains("nothing was deleted")
            && refused.stderr.contains(" plan delete configmaps/root -n default --cascade=background shows"),
        "{}",
        refused.stderr
    );
    assert!(world.api().get("root").await.is_some());

    let arguments = delete(digest(&world.ask(&plan).await));
    let done = world.ask(&arguments.each_ref().map(String::as_str)).await;
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "configmap/root deleted\n"), "{}", done.stderr);
    assert!(world.api().get("root").await.is_none());
    until("what went is remembered", async || {
        let why = world.ask(&["why", "cm/root"]).await.stdout;
        why.contains("ConfigMap default/root was deleted") && why.contains("not by the collector")
    })
    .await;
    until("the dependents are known to be in vain", async || {
        let found = world.ask(&["orphans", "--dangling"]).await;
        found.code == Some(2) && found.stdout.contains("ConfigMap/first")
    })
    .await;
    let gone = world.ask(&arguments.each_ref().map(String::as_str)).await;
    assert!(gone.code == Some(3) && gone.stderr.contains("ConfigMap default/root does not exist"), "{}", gone.stderr);
}

#[tokio::test]
async fn a_plan_takes_what_a_selector_fits_and_what_files_describe() {
    let world = World::start().await;
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    file("a.yaml", "# one\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: second, namespace: default}\n---\n");
    file(
        "b.json",
        r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"leaf"}}]}"#,
    );
    file("c.txt", "no description");
    let path = directory.path().to_str().unwrap();
    let cases: [(&[&str], &str, &str); 6] = [
        (&["cm/leaf", "configmap/leaf"], "configmap/leaf\n", ""),
        (&["-f", path], "configmap/second\nconfigmap/leaf\n", ""),
        (&["cm,secrets", "--field-selector", "metadata.name=second"], "configmap/second\n", ""),
        (&["cm", "-l", "app=web"], "", "no object matches"),
        (&["cm", "-l", "a b"], "", "is not a valid label key"),
        (&["-f", path, "-n", "other"], "", "ConfigMap \"second\" is in namespace \"default\", but -n is \"other\""),
    ];
    for (targets, names, part) in cases {
        let said = world.ask(&[&["plan", "delete", "-o", "name"], targets].concat()).await;
        let mut lines: Vec<&str> = said.stdout.split_inclusive('\n').collect();
        lines.sort_by_key(|line| std::cmp::Reverse(*line));
        assert_eq!(lines.concat(), names, "{targets:?}: {}", said.stderr);
        assert!(said.stderr.contains(part), "{targets:?}: {}", said.stderr);
    }
    let plan = world.ask(&["plan", "delete", "-f", path]).await;
    let run = plan.stdout.lines().find_map(|line| line.strip_prefix("run    kubectl ownergraph ")).unwrap();
    assert!(run.contains(&format!(" delete -f {path} --cascade=background --confirm={}", digest(&plan))), "{run}");
    // The command runs as it is printed.
    let done = output(&mut plugin(&run.split(' ').collect::<Vec<_>>())).await;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let done = Said { code: done.status.code(), stdout: text(&done.stdout), stderr: text(&done.stderr) };
    assert_eq!(done.stdout, "configmap/second deleted\nconfigmap/leaf deleted\n", "{}", done.stderr);
    let selected = ["cm", "--field-selector=metadata.name!=first"];
    let plan = world.ask(&[&["plan", "delete"], &selected[..]].concat()).await;
    world.api().create("another", &[]).await;
    let refused = world.ask(&[&["delete", "--confirm", &digest(&plan)], &selected[..]].concat()).await;
    assert!(refused.code == Some(3) && refused.stderr.contains("the plan has changed"), "{}", refused.stderr);
    assert!(world.api().get("root").await.is_some());
}

#[tokio::test]
async fn documents_carry_their_kind_and_what_is_missing() {
    let world = World::start().await;
    let cases: [(&[&str], &str, &str); 13] = [
        (&["tree", "cm/root"], "Tree", "dependents"),
        (&["tree", "cm/first", "--both"], "Lineage", "owners"),
        (&["owners", "cm/leaf"], "Owners", "owners"),
        (&["why", "cm/leaf"], "Explanation", "verdict"),
        (&["plan", "delete", "cm/root"], "DeletionPlan", "digest"),
        (&["stuck"], "StuckList", "items"),
        (&["check", "-A"], "ReferenceList", "items"),
        (&["export"], "Graph", "nodes"),
        (&["orphans"], "OrphanCountList", "items"),
        (&["cycles"], "CycleList", "items"),
        (&["queue"], "QueueList", "items"),
        (&["decisions"], "DecisionList", "items"),
        (&["version"], "Version", "client"),
    ];
    for (question, kind, field) in cases {
        let said = world.ask(&[question, &["-o", "json"]].concat()).await;
        let document: Value =
            serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{question:?}: {}", said.stderr));
        assert_eq!((&document["apiVersion"], &document["kind"]), (&"ownergraph.dev/v1alpha1".into(), &kind.into()));
        assert!(!document[field].is_null() && document["status"]["incomplete"].is_array(), "{document}");
    }
    // A collector that runs is asked without a kubeconfig.
    for format in ["json", "yaml"] {
        let said = output(&mut plugin(&["status", "--server", &world.server, "-o", format])).await;
        let document: Value = serde_saphyr::from_slice(&said.stdout).unwrap();
        assert_eq!(document["kind"], "CollectorStatus", "{document}");
        assert!(document["nodeCount"].is_string() && document["collections"].is_array(), "{document}");
    }
}

#[tokio::test]
async fn tables_take_the_flags_that_kubectl_has() {
    let world = World::start().await;
    let cases: [(&[&str], usize, &str); 8] = [
        (&["tree", "cm/root", "--no-headers"], 4, "ConfigMap/root"),
        (&["tree", "cm/root", "-L", "app", "--show-labels"], 5, "APP  LABELS"),
        (&["why", "cm/root", "-o", "wide"], 0, "has no owners"),
        (&["path", "cm/leaf", "cm/root", "-o", "table"], 3, "is owned by"),
        (&["-A", "orphans", "--no-headers"], 0, "ConfigMap"),
        (&["status", "-o", "wide"], 0, "replica "),
        (&["version", "-o", "wide"], 4, "schema "),
        (
            &["plan", "delete", "cm", "-A", "--field-selector", "metadata.name=leaf"],
            0,
            "delete cm --field-selector=metadata.name=leaf -A",
        ),
    ];
    for (question, lines, part) in cases {
        let said = world.ask(question).await;
        let count = said.stdout.lines().count();
        assert!(
            said.stdout.contains(part) && (lines == 0 || count == lines),
            "{question:?}: {}{}",
            said.stdout,
            said.stderr
        );
        assert!(!said.stdout.starts_with("KIND"), "{}", said.stdout);
    }
    for question in ["queue", "check", "stuck", "cycles", "orphans", "decisions"] {
        for format in ["wide", "table", "json", "yaml"] {
            let said = world.ask(&[question, "-o", format]).await;
            assert!(matches!(said.code, Some(0 | 2)), "{question} -o {format}: {}", said.stderr);
        }
    }
    for (question, part) in [
        (&["queue"][..], "nothing waits in namespace default"),
        (&["stuck", "-n", "kube-system"], "nothing is stuck in namespace kube-system for longer than 5m"),
        (&["check", "-A", "--older-than", "1d"], "no findings in any namespace"),
        (&["tree", "cm/root", "-A"], "--all-namespaces does not go with the name of an object"),
        (&["tree", "cm/root", "--server", "garbage"], "--server \"garbage\" is not HOST:PORT"),
    ] {
        let said = world.run(&[], &[question, &["--server", &world.server]].concat()).await;
        assert!(said.stderr.contains(part), "{question:?}: {}", said.stderr);
    }
}

#[tokio::test]
async fn a_deletion_is_waited_for() {
    let world = World::start().await;
    let plan = world.ask(&["plan", "delete", "cm/leaf"]).await;
    let confirm = format!("--confirm={}", digest(&plan));
    let gone = world.ask(&["delete", "cm/leaf", "--wait", &confirm, "-o", "name"]).await;
    assert_eq!((gone.code, gone.stdout.as_str()), (Some(0), "configmap/leaf\n"), "{}", gone.stderr);
    let plan = world.ask(&["plan", "delete", "cm/root", "--cascade=foreground"]).await;
    let confirm = format!("--confirm={}", digest(&plan));
    let flags = ["delete", "cm/root", "--cascade=foreground", "--wait=true", "--timeout=1s", &confirm];
    let late = world.ask(&flags).await;
    assert_eq!(late.code, Some(124), "an observer deletes no dependents: {}", late.stderr);
    assert!(late.stderr.contains("ConfigMap default/root is marked for deletion, and still there"), "{}", late.stderr);
}

#[tokio::test]
async fn templates_are_filled_from_the_document() {
    let world = World::start().await;
    let template = r#"jsonpath={.root.ref.name}:{range .dependents[?(@.depth==1)]} {.node.ref.name}{end}{"\n"}"#;
    let said = world.ask(&["-o", template, "tree", "cm/root"]).await;
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "root: first second\n"), "{}", said.stderr);
    for (template, part) in [("jsonpath={items}", "a text needs quotes"), ("blue", "possible values: table")] {
        let said = world.ask(&["tree", "cm/root", "-o", template]).await;
        assert!(said.code == Some(1) && said.stderr.contains(part), "{}", said.stderr);
    }
}

#[tokio::test]
async fn what_is_left_out_is_counted_with_what_left_it_out() {
    let world = World::start().await;
    let cases: [(&[&str], usize, &str); 6] = [
        (&["tree", "cm/root", "--field-selector", "metadata.name!=leaf"], 3, "… 1 hidden by --field-selector"),
        (&["tree", "cm/root", "--field-selector", "metadata.name=leaf"], 3, "… 1 hidden by --field-selector"),
        (&["tree", "cm/root", "--older-than", "1h"], 1, "… 3 hidden by --older-than"),
        (&["tree", "cm/root", "--newer-than", "1h"], 4, ""),
        (&["tree", "cm/leaf", "--both", "-l", "app=web"], 1, "… 2 hidden by --selector"),
        (&["export", "-l", "!app", "--newer-than", "1h", "--field-selector=metadata.name=root"], 1, "--newer-than"),
    ];
    for (question, lines, part) in cases {
        let said = world.ask(&[question, &["-o", "name"]].concat()).await;
        assert_eq!((said.code, said.stdout.lines().count()), (Some(0), lines), "{question:?}: {}", said.stdout);
        assert!(said.stderr.contains(part), "{question:?}: {}", said.stderr);
    }
    let tree = world.ask(&["-n", "default", "-o", "table", "tree", "cm/leaf", "--both", "--kinds", "!secret"]).await;
    let lines: Vec<&str> = tree.stdout.lines().map(str::trim_end).collect();
    assert!(lines[1].contains("ConfigMap/root") && lines[3].contains("ConfigMap/leaf"), "{}", tree.stdout);
}

#[tokio::test]
async fn slips_are_named_with_a_suggestion_and_the_right_code() {
    let world = World::start().await;
    let cases: [(&[&str], i32, &str); 7] = [
        (&["tree", "deplyment/x"], 1, "did you mean \"deployment\"?"),
        (&["tree", "cm/missing"], 1, " why configmap/missing -n default may show more"),
        (&["pause", "--kind", "deplyment", "--for", "1m", "--reason", "r"], 1, "did you mean \"deployment\"?"),
        (&["plan", "delete", "cm/missing"], 1, "does not exist"),
        (&["why", "cm/root", "-o", "dot"], 1, "-o dot is not supported by this command"),
        (&["why", "cm"], 1, "name an object as"),
        (&["tre", "cm/root"], 1, "similar subcommand"),
    ];
    for (arguments, code, part) in cases {
        let said = world.ask(arguments).await;
        assert_eq!(said.code, Some(code), "{arguments:?}: {}", said.stderr);
        assert!(said.stderr.contains(part) && said.stdout.is_empty(), "{arguments:?}: {} {}", said.stdout, said.stderr);
    }
    let never = world.ask(&["why", "cm/missing"]).await;
    assert!(never.code == Some(1) && never.stdout.contains("was never seen"), "{}", never.stdout);
    let same = output(&mut ownergraph(&["stuck", "--nonsense"])).await;
    assert_eq!(same.status.code(), Some(1), "2 would mean findings");
    let unreachable = world.run(&["--server", "127.0.0.1:1"], &["why", "cm/root"]).await;
    assert!(
        unreachable.code == Some(1)
            && unreachable.stderr.contains("no graph service can be reached: 127.0.0.1:1 cannot be reached"),
        "{}",
        unreachable.stderr
    );
    let version = world.run(&["--server", "127.0.0.1:1"], &["version"]).await;
    assert!(version.code == Some(1) && version.stdout.contains("\nserver   Kubernetes "), "{}", version.stdout);
    assert!(version.stderr.starts_with("error: no graph service can be reached"), "{}", version.stderr);
    let kubeconfig = std::fs::read_to_string(&world.cluster.kubeconfig).unwrap();
    let api = kubeconfig.split("http://").nth(1).unwrap().split(['/', '"', '\n']).next().unwrap();
    let part = format!("error: {api} does not answer as a graph service (is it the admin port, or the API server?)");
    let questions: [&[&str]; 4] =
        [&["why", "cm/root"], &["status"], &["resume", "--all"], &["pause", "--all", "--for", "1m", "--reason", "r"]];
    for question in questions {
        let said = world.run(&["--server", api], question).await;
        assert!(said.code == Some(1) && said.stderr.starts_with(&part), "{question:?}: {}", said.stderr);
    }
    let nothing = world.ask(&["orphans", "-n", "empty"]).await;
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(0), ""));
    assert_eq!(nothing.stderr, "note: no objects in namespace empty\n");
}

#[tokio::test]
async fn a_line_is_completed_from_what_is_there_or_not_at_all() {
    let world = World::start().await;
    let complete = async |line: &[&str]| {
        let mut command = completer(line);
        let said = output(command.env("KUBECONFIG", &world.cluster.kubeconfig)).await;
        (said.status.code(), String::from_utf8(said.stdout).unwrap(), String::from_utf8(said.stderr).unwrap())
    };
    let server = format!("--server={}", world.server);
    let done = |words: &str| (Some(0), format!("{words}:4\n"), String::new());
    assert_eq!(complete(&["-n", "default", "tree", &server, "cm/s"]).await, done("cm/second\n"));
    assert_eq!(complete(&["tree", "configm"]).await.1.lines().next(), Some("configmaps"));
    assert_eq!(complete(&["plan", "delete", "cm", "roo"]).await, done("root\n"), "without a service too");
    assert_eq!(complete(&["why", "-n", "kube-s"]).await, done("kube-system\n"));
    let nothing = (Some(1), String::new(), String::new());
    assert_eq!(complete(&["tree", "nonsense/x"]).await, nothing);
    assert_eq!(complete(&["tree", "--kubeconfig", "/nonexistent", "cm/"]).await, nothing);
}

#[tokio::test]
async fn a_tree_is_followed() {
    let world = World::start().await;
    let arguments = ["tree", "cm/root", "-w", "--no-status", "--kubeconfig", &world.cluster.kubeconfig];
    let mut follower = Running::of(plugin(&[&arguments[..], &["--server", &world.server]].concat()));
    follower.said("└─ConfigMap/second").await;
    let first = world.api().get("first").await.unwrap();
    let uid = first["metadata"]["uid"].clone();
    let owner = serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "first", "uid": uid });
    world.api().create("late", &[&owner]).await;
    assert!(follower.said("ConfigMap/late").await.starts_with("added "));
    world.api().delete("late").await;
    assert!(follower.said("ConfigMap/late").await.starts_with("removed "));
    for name in ["leaf", "first", "second", "root"] {
        world.api().delete(name).await;
    }
    follower.logged("ConfigMap default/root is gone, and no dependent of it is left").await;
}

#[tokio::test]
async fn what_is_followed_goes_on_after_a_restart_of_the_collector() {
    let World { cluster, collector, server } = World::start().await;
    let way = ["--kubeconfig", &cluster.kubeconfig, "--server", &server];
    let mut tree = Running::of(plugin(&[&["tree", "cm/root", "-w", "--no-status"], &way[..]].concat()));
    let mut status = Running::of(plugin(&[&["status", "-w"], &way[..]].concat()));
    tree.said("└─ConfigMap/second").await;
    status.said("replica ").await;
    assert_eq!(collector.terminate().await.code(), Some(0));
    for follower in [&mut tree, &mut status] {
        let note = follower.logged("; connecting again").await;
        assert!(!note.contains("answered"), "{note}");
    }
    let (collector, _admin) = cluster.collector(&["--mode", "observe", "--listen", &server]).await;
    let root = cluster.api.get("root").await.unwrap();
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "root", "uid": root["metadata"]["uid"] });
    status.said("replica ").await;
    cluster.api.create("late", &[&owner]).await;
    tree.said("ConfigMap/late").await;
    assert_eq!(collector.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn a_comparison_says_what_it_needs() {
    let world = World::start().await;
    let said = world.ask(&["parity"]).await;
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("nothing has been compared yet: delete an object"), "{}", said.stderr);
    assert!(said.stdout.contains("\nattributed    by facts: no audit log\n"), "{}", said.stdout);
    let page = world.ask(&["parity", "-o", "html", "-n", "shop"]).await;
    assert!(
        page.stdout.starts_with("<!doctype html>\n") && page.stdout.contains("in namespace shop"),
        "{}",
        page.stdout
    );
    let status = world.ask(&["status"]).await;
    assert!(status.stdout.contains("\nparity      nothing compared yet, since "), "{}", status.stdout);
    let world = World::with("enforce").await;
    let said = world.ask(&["parity"]).await;
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.starts_with("error: this collector carries its decisions out"), "{}", said.stderr);
    let status = world.ask(&["status"]).await;
    assert!(!status.stdout.contains("\nparity "), "{}", status.stdout);
}
