use super::{Options, advertised, duration, group_resource};
use clap::Parser as _;
use std::time::Duration;

fn parse(flags: &[&str]) -> Result<Options, String> {
    let flags = std::iter::once("graph-service").chain(flags.iter().copied());
    let options = Options::try_parse_from(flags).map_err(|error| error.to_string())?;
    options.check().map_err(|error| error.to_string())?;
    Ok(options)
}

#[test]
fn the_lease_lasts_a_fifth_longer_than_that_of_kubernetes() {
    let options = parse(&[]).unwrap();
    assert_eq!(options.lease().lease_duration, Duration::from_secs(18));
    assert_eq!(options.lease().renew_deadline, Duration::from_secs(12));
    assert_eq!(options.lease().retry_period, Duration::from_secs(2));
    let config = options.config(options.listen);
    assert_eq!(config.advertise, "127.0.0.1:7450");
    let ignored: Vec<String> = config.ignore.iter().map(ToString::to_string).collect();
    assert_eq!(ignored, ["events", "events.events.k8s.io"]);
}

#[test]
fn bad_flags_are_named() {
    let cases: &[(&[&str], &str)] = &[
        (&["--listen", "nowhere"], "--listen"),
        (&["--listen", "0.0.0.0:7450"], "--insecure"),
        (&["--admin-listen", "0.0.0.0:7451"], "--admin-listen 0.0.0.0:7451 is not a loopback address"),
        (&["--listen", "127.0.0.1:7451"], "--admin-listen"),
        (&["--mode", "sometimes"], "--mode"),
        (&["--ignore-resources", "pods,Pods"], "--ignore-resources"),
        (&["--lease-name", "a/b"], "--lease-name"),
        (&["--lease-duration", "15"], "--lease-duration"),
        (
            &["--lease-duration", "1500ms", "--renew-deadline", "1s", "--retry-period", "500ms"],
            "whole number of seconds",
        ),
        (&["--lease-duration", "2h"], "longer than an hour"),
        (&["--renew-deadline", "18s"], "--renew-deadline 18s must be shorter than --lease-duration 18s"),
        (&["--retry-period", "10s"], "--retry-period 10s must be more than a fifth shorter than --renew-deadline 12s"),
        (&["--retry-period", "0s"], "--retry-period"),
        (&["--decision-log", "localhost:4222"], "'--decision-log <URL>': expected nats://[USER:PASSWORD@]HOST[:PORT]"),
        (
            &["--decision-log", "nats://a@127.0.0.1,nats://b@127.0.0.1"],
            "--decision-log names different users, passwords or tokens",
        ),
        (&["--decision-log", "nats://10.0.0.1:4222"], "--decision-log nats://10.0.0.1:4222 is not a loopback address"),
        (&["--decision-log-required"], "--decision-log-required needs --decision-log"),
        (&["--assume-no-dependents", "/*"], "--assume-no-dependents"),
        (&["--assume-no-dependents", "x.io/*/*"], "--assume-no-dependents"),
        (&["--ignore-resources", "x.io/*"], "--ignore-resources"),
        (&["--grpc-web-origins", "*"], "--grpc-web-origins"),
        (&["--grpc-web-origins", "https://a.example,https://b.example/"], "--grpc-web-origins"),
        (
            &["--record", "a", "--record-max", "2"],
            "'--record-max <SIZE>': 2 B is less than 16 MiB; give a size with its",
        ),
        (&["--record", "a", "--record-max", "15MiB"], "15.0 MiB is less than 16 MiB"),
        (&["--record", "a", "--record-max", "much"], "'--record-max <SIZE>': expected a size such as 500MiB"),
        (&["--audit-log", "a"], "--audit-log needs --mode observe"),
        (&["--audit-webhook", "127.0.0.1:7453"], "--audit-webhook needs --mode observe"),
        (&["--mode", "observe", "--audit-webhook-token-file", "a"], "--audit-webhook"),
        (
            &["--mode", "observe", "--audit-webhook", "0.0.0.0:7453", "--audit-webhook-token-file", "a"],
            "--audit-webhook 0.0.0.0:7453 is not a loopback address, so any sender could invent events",
        ),
        (
            &["--mode", "observe", "--audit-webhook", "0.0.0.0:7453", "--tls-cert", "a", "--tls-key", "b"],
            "and --audit-webhook-token-file",
        ),
        (
            &["--mode", "observe", "--audit-webhook", "127.0.0.1:7453", "--audit-webhook-token-file", "a"],
            "--audit-webhook-token-file needs --tls-cert",
        ),
        (
            &["--mode", "observe", "--audit-webhook", "127.0.0.1:7451"],
            "--admin-listen and --audit-webhook are both 127.0.0.1:7451",
        ),
        (&["--nonsense"], "--nonsense"),
    ];
    for (flags, expected) in cases {
        let error = parse(flags).expect_err("these flags are refused");
        assert!(error.contains(expected), "{flags:?}: {error}");
    }
}

#[test]
fn a_whole_group_can_be_assumed_to_hold_no_dependents() {
    let options = parse(&["--assume-no-dependents", "metrics.k8s.io/*,apps/deployments,/pods"]).unwrap();
    let assumed = options.policy.assume_no_dependents.iter().map(|of| (&*of.group, &*of.resource));
    assert_eq!(assumed.collect::<Vec<_>>(), [("metrics.k8s.io", "*"), ("apps", "deployments"), ("", "pods")]);
}

#[test]
fn plaintext_beyond_loopback_is_allowed_on_request() {
    parse(&["--listen", "0.0.0.0:7450", "--admin-listen", "0.0.0.0:7451", "--insecure"]).unwrap();
}

#[test]
fn both_sources_of_audit_events_are_allowed_in_mode_observe() {
    let observe = ["--mode", "observe", "--audit-log", "/var/log/audit.log", "--audit-webhook"];
    parse(&[&observe[..], &["127.0.0.1:7453"]].concat()).unwrap();
    let token = ["0.0.0.0:7453", "--audit-webhook-token-file", "a", "--tls-cert", "b", "--tls-key", "c"];
    parse(&[&observe[..], &token].concat()).unwrap();
}

#[test]
fn an_address_that_leads_nowhere_is_not_advertised() {
    assert_eq!(advertised("0.0.0.0:7450".parse().unwrap()), "");
    assert_eq!(advertised("[::]:7450".parse().unwrap()), "");
    assert_eq!(advertised("127.0.0.1:7450".parse().unwrap()), "127.0.0.1:7450");
}

#[test]
fn reads_durations_and_resources() {
    assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
    assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
    assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
    assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
    assert_eq!(duration("99999999999999h").map(|span| span.as_secs() / 3600), Ok(99_999_999_999_999));
    for text in ["", "s", "5", "1d", "-1s", "1s-5s", "1e30s", "NaNs", "infs", "..s", "99999999999999999999h", "0s", "0"]
    {
        duration(text).expect_err(text);
    }
    assert_eq!(group_resource("deployments.apps").unwrap().to_string(), "deployments.apps");
    for text in ["", ".apps", "pods.", "a b"] {
        group_resource(text).expect_err(text);
    }
}
