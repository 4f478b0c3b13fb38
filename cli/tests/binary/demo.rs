//! `ownergraph demo`: the story and the summary.

use crate::process::{output, ownergraph};
use serde_json::Value;

fn number(of: &Value, field: &str) -> u64 {
    of[field].as_u64().unwrap_or_else(|| panic!("{field} of {of}"))
}

#[tokio::test]
async fn the_summary_is_one_json_document_whose_numbers_add_up() {
    let output = output(&mut ownergraph(&["demo", "--objects", "300", "-o", "json"])).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((summary["kind"].as_str(), summary["verified"].as_bool()), (Some("DemoSummary"), Some(true)));
    assert_eq!(summary["problems"].as_array().map(Vec::len), Some(0));

    let acts = summary["acts"].as_array().unwrap();
    let names: Vec<&str> = acts.iter().filter_map(|act| act["name"].as_str()).collect();
    assert_eq!(names, ["background", "foreground", "orphan", "shared-owner", "cascade"]);
    for field in ["deleted", "collected", "changed", "requests"] {
        let sum: u64 = acts.iter().map(|act| number(act, field)).sum();
        assert_eq!(sum, number(&summary, field), "{field}");
    }
    let [built, deleted, collected, kept] =
        ["built", "deleted", "collected", "kept"].map(|field| number(&summary, field));
    assert_eq!(built, deleted + collected + kept);
    let reasons = summary["keptBecause"].as_array().unwrap();
    assert_eq!(kept, reasons.iter().map(|reason| number(reason, "count")).sum::<u64>());

    let cascade = &acts[4];
    assert_eq!((number(cascade, "deleted"), number(cascade, "collected")), (20, 300));
    let per_object = cascade["requestsPerObject"].as_f64().unwrap();
    assert!((1.0..=1.1).contains(&per_object), "{cascade}");
}

#[tokio::test]
async fn the_story_tells_each_act_in_plain_lines_without_colours() {
    let output = output(&mut ownergraph(&["demo", "--objects", "40", "--executors", "1"])).await;
    assert!(output.status.success(), "{output:?}");
    let story = String::from_utf8(output.stdout).unwrap();
    assert!(!story.contains('\u{1b}'), "{story}");
    let parts = [
        "\n1. Background: Deployment shop/web is deleted",
        "gone  ReplicaSet shop/web-7f9c  owner Deployment web is gone: DELETED seen at version",
        "\n2. Foreground: Database shop/orders",
        "this demo deleted it; no dependent that it waited for is left",
        "\n3. Orphan: Database shop/archive",
        "loses the reference to Database archive, which orphans its dependents",
        "\n4. Shared: Database shop/invoices",
        "Database billing still owns it, loses the reference to Database invoices, which is gone",
        "\n5. Cascade: 20 owners of 40 ConfigMaps",
        "40 of 40 gone",
        "\nSummary\n",
        "\nKept, and why\n",
        "\nChecked at the API server",
    ];
    let mut rest = story.as_str();
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is missing, or too early, in:\n{story}"));
        rest = &rest[at..];
    }
    let at = |part: &str| story.find(part).unwrap_or_else(|| panic!("{part:?} in:\n{story}"));
    let leaves = at("gone  Secret shop/orders-reader").max(at("gone  Secret shop/orders-writer"));
    assert!(leaves < at("gone  ConfigMap shop/orders-config"), "{story}");
    assert!(at("gone  ConfigMap shop/orders-config") < at("gone  Database shop/orders"), "{story}");
}

#[tokio::test]
async fn one_object_is_a_cascade_too() {
    let output = output(&mut ownergraph(&["demo", "--objects", "1", "--json"])).await;
    assert!(output.status.success(), "{output:?}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(number(&summary["acts"][4], "collected"), 1);
}
