use super::*;
use crate::options::Options;
use clap::CommandFactory as _;

#[test]
fn urls_are_shown_without_credentials() {
    for (value, expected) in [
        ("nats://nats:4222", "nats://nats:4222"),
        ("nats://user:pass@nats:4222", "nats://REDACTED@nats:4222"),
        ("tls://t0ken@nats", "tls://REDACTED@nats"),
        ("nats://user:p@ss/?#word@nats:4222", "nats://REDACTED@nats:4222"),
        ("https://collector:4317/v1?key=t0ken", "https://collector:4317/v1?REDACTED"),
        ("https://user:pass@collector/#t0ken", "https://REDACTED@collector/?REDACTED"),
        ("admin@kind", "admin@kind"),
        ("/etc/a@b/c?d", "/etc/a@b/c?d"),
        ("pods,events.events.k8s.io", "pods,events.events.k8s.io"),
        ("", ""),
    ] {
        assert_eq!(without_credentials(value), expected, "{value}");
    }
}

#[test]
fn flags_that_may_have_a_secret_are_not_shown() {
    for (name, value_name, value, expected) in [
        ("password", "TEXT", "value", "REDACTED"),
        ("sink-token", "TOKEN", "value", "REDACTED"),
        ("client-secret", "NAME", "value", "REDACTED"),
        ("api-key", "KEY", "value", "REDACTED"),
        ("token-file", "FILE", "value", "value"),
        ("tls-key", "FILE", "/a@b/key", "/a@b/key"),
        ("token-audience", "NAME", "value", "value"),
        ("context", "NAME", "admin@kind", "admin@kind"),
        ("endpoint", "URL", "me:pa55@host:1", "REDACTED@host:1"),
        ("endpoint", "URL", "http://me:pa55@host:1", "http://REDACTED@host:1"),
    ] {
        let flag = Arg::new(name).long(name).value_name(value_name);
        assert_eq!(shown(&flag, name, value), expected, "--{name} {value}");
    }
}

#[test]
fn the_flags_of_a_service_have_their_source() {
    let command = Options::command();
    let line = [
        "graph-service",
        "--decision-log=nats://me:pa55@nats-0,nats://me:pa55@nats-1",
        "--insecure",
        "--record=/recordings",
    ];
    let found = command.clone().try_get_matches_from(line).unwrap();
    let flags = Flags::of(&command, &found);
    let values = |values: &[&str]| Some(values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>());
    let given = |name: &str| flags.command_line.get(name).cloned();
    assert_eq!(given("decision-log"), values(&["nats://REDACTED@nats-0", "nats://REDACTED@nats-1"]));
    assert_eq!(given("insecure"), values(&["true"]));
    assert_eq!(given("record"), values(&["/recordings"]));
    assert_eq!((given("listen"), flags.default.get("lease-name").cloned()), (None, values(&["ownergraph"])));
    assert!(!serde_json::to_string(&flags).unwrap().contains("pa55"));
}
