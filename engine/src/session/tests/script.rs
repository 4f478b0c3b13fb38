//! The script language of the scenarios: `MILLISECONDS | input | expected outputs`.

use super::super::*;
use crate::object::{ObjectRef, ResourceVersion, Uid};
use crate::pace::Rate;
use crate::work::{
    Action, Outcome, PROTOCOL, Preconditions, PropagationPolicy, Protocols, ReportResult, ReturnCause, RevokeMode,
    Welcome, WorkItem,
};
use alloc::format;
use alloc::string::ToString;

pub(super) fn config() -> Config {
    Config {
        executor: Name::from("pod"),
        incarnation: Name::from("pod-1"),
        version: "test".to_string(),
        cluster_uid: Name::from("here"),
        concurrency: Concurrency::Fixed(2),
        kinds: Vec::from([ActionKind::Delete]),
        protocols: Protocols::OURS,
        reconnect_min: Duration::from_millis(100),
        reconnect_max: Duration::from_secs(5),
    }
}

pub(super) fn term(number: u64) -> Term {
    Term { election: Name::from("L"), number }
}

fn object() -> ObjectRef {
    ObjectRef {
        group: Name::from(""),
        version: Name::from("v1"),
        resource: Name::from("configmaps"),
        kind: Name::from("ConfigMap"),
        namespace: Name::from("default"),
        name: Name::from("a"),
        uid: Uid::parse("a").expect("not empty"),
    }
}

pub(super) fn lease(id: LeaseId, term: Term, action: Action) -> WorkLease {
    WorkLease {
        id,
        term,
        item: WorkItem {
            id: id.number,
            target: object(),
            preconditions: Preconditions {
                resource_version: ResourceVersion::parse("1"),
                facts_digest: 0,
                must_be_terminating: false,
            },
            action,
            read_first: false,
            generation: 1,
        },
        attempt: 1,
        execution_limit: Duration::from_secs(30),
        previous_attempt_ambiguous: false,
        traceparent: None,
    }
}

pub(super) fn delete() -> Action {
    Action::Delete { propagation_policy: PropagationPolicy::Background, owner_checks: Vec::new() }
}

pub(super) fn report(id: LeaseId, term: Term) -> WorkReport {
    WorkReport {
        lease: id,
        item: id.number,
        term,
        attempt: 1,
        outcome: Outcome::Done,
        observed: None,
        findings: Vec::new(),
        http_status: 200,
        status_reason: String::new(),
        message: String::new(),
        webhook: None,
        retry_after: None,
        api_calls: 1,
        execution_time: Duration::from_millis(5),
        audit_id: String::new(),
        about: None,
    }
}

fn id(text: &str) -> LeaseId {
    LeaseId::parse(text).unwrap_or_else(|| panic!("lease {text:?}"))
}

fn ids(text: &str) -> Vec<LeaseId> {
    text.split_whitespace().map(id).collect()
}

fn granted(word: &str) -> WorkLease {
    // `M:1-7` is of another election, `1-7!` of a kind that this executor does not support.
    let (election, word) = word.split_once(':').unwrap_or(("L", word));
    let (word, action) = match word.strip_suffix('!') {
        Some(word) => (word, Action::RemoveFinalizer { finalizer: Name::from("orphan") }),
        None => (word, delete()),
    };
    let id = id(word);
    lease(id, Term { election: Name::from(election), number: id.term }, action)
}

/// `welcome L/1 1-1 1-2`: term and adopted leases.
pub(super) fn welcome(text: &str) -> ToExecutor {
    let (term, adopted) = text.split_once(' ').unwrap_or((text, ""));
    let (election, number) = term.split_once('/').expect("a term");
    ToExecutor::Welcome(Welcome {
        session: 1,
        term: Term { election: Name::from(election), number: number.parse().expect("a number") },
        protocol: PROTOCOL,
        session_ttl: Duration::from_secs(15),
        heartbeat_interval: Duration::from_secs(5),
        adopted: ids(adopted),
        dropped: Vec::new(),
        max_window: 1_000,
    })
}

fn away(text: &str) -> ToExecutor {
    let [cause, leader_endpoint, reconnect, close] = text.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{text:?}")
    };
    let seconds = |text: &str| Duration::from_secs(text.parse().expect("seconds"));
    ToExecutor::GoAway {
        cause: match cause {
            "changed" => GoAwayCause::LeaderChanged,
            "age" => GoAwayCause::SessionAge,
            "superseded" => GoAwayCause::Superseded,
            _ => panic!("cause {cause:?}"),
        },
        leader_endpoint: leader_endpoint.trim_matches('-').to_string(),
        reconnect_after: seconds(reconnect),
        close_after: seconds(close),
    }
}

fn refused(text: &str) -> Refusal {
    match text {
        "superseded" => Refusal::Superseded,
        "drained" => Refusal::Drained,
        "cluster" => Refusal::OtherCluster { ours: Name::from("there"), theirs: Name::from("here") },
        "protocol" => Refusal::ProtocolUnsupported { min: 3, max: 4 },
        "stale" => Refusal::TermStale { known: term(9) },
        _ => panic!("refusal {text:?}"),
    }
}

pub(super) fn input(text: &str) -> Option<Input> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let lost = |leader_endpoint, refusal| Input::Disconnected { leader_endpoint, refusal, why: "reset".to_string() };
    let revoke = |mode| ToExecutor::Revoke { leases: ids(rest), mode, reason: String::new() };
    let message = match word {
        "tick" => return None,
        "connected" => return Some(Input::Connected),
        "lost" => return Some(lost((!rest.is_empty()).then(|| rest.to_string()), None)),
        "refused" => return Some(lost(None, Some(refused(rest)))),
        "stranger" => {
            let report = report(id(rest), term(id(rest).term));
            return Some(Input::Finished(WorkReport { outcome: Outcome::Unauthenticated, ..report }));
        }
        "checked" => {
            return Some(Input::CredentialsChecked(if rest == "ok" { Ok(()) } else { Err(rest.to_string()) }));
        }
        "wrote-again" => return Some(Input::WroteAgain { times: rest.parse().expect("a number") }),
        "finish" => return Some(Input::Finished(report(id(rest), term(id(rest).term)))),
        "drain" => {
            let deadline = Duration::from_secs(rest.parse().expect("seconds"));
            return Some(Input::Drain { reason: "stop".to_string(), deadline });
        }
        "welcome" => welcome(rest),
        "grant" => ToExecutor::Grant { leases: rest.split_whitespace().map(granted).collect() },
        "ack" => {
            ToExecutor::ReportAck { results: ids(rest).into_iter().map(|id| (id, ReportResult::Accepted)).collect() }
        }
        "beat-ack" => {
            let (sequence, number) = rest.split_once(' ').unwrap_or((rest, "1"));
            ToExecutor::HeartbeatAck {
                sequence: sequence.parse().expect("a number"),
                session_ttl: Duration::from_secs(15),
                term: term(number.parse().expect("a number")),
            }
        }
        "share" => {
            let (rate, seconds) = rest.split_once(' ').expect("a rate and seconds");
            let rate = Rate::per_second(rate.parse().expect("a rate"));
            let valid_for = Duration::from_secs(seconds.parse().expect("seconds"));
            ToExecutor::Throttle { max_writes_per_second: rate, valid_for }
        }
        "recall" => revoke(RevokeMode::IfNotStarted),
        "stop" => revoke(RevokeMode::Stop),
        "drain-ack" => ToExecutor::DrainAck { outstanding: rest.parse().expect("a number") },
        "away" => away(rest),
        _ => panic!("input {text:?}"),
    };
    Some(Input::Message(message))
}

fn list(ids: impl IntoIterator<Item = String>) -> String {
    ids.into_iter().collect::<Vec<_>>().join(" ")
}

fn render_message(message: &ToLeader) -> String {
    match message {
        ToLeader::Hello(hello) => {
            let held =
                list(hello.held.iter().map(|held| format!("{}{}", held.lease, if held.started { "*" } else { "" })));
            let known =
                hello.known_term.as_ref().map_or("-".to_string(), |term| format!("{}/{}", term.election, term.number));
            format!("hello {known} window {} [{held}]", hello.window)
        }
        ToLeader::Heartbeat { sequence, started, buffered } => format!("beat {sequence} {started}+{buffered}"),
        ToLeader::Window { max_outstanding } => format!("window {max_outstanding}"),
        ToLeader::Started { leases } => format!("started [{}]", list(leases.iter().map(LeaseId::to_string))),
        ToLeader::Reports { reports, returns } => {
            let reports = list(reports.iter().map(|report| report.lease.to_string()));
            let returns = list(returns.iter().map(|entry| {
                let cause = match entry.cause {
                    ReturnCause::NotStarted => "",
                    ReturnCause::KindUnsupported => ":kind",
                    ReturnCause::TermStale => ":term",
                    ReturnCause::SessionLapsed => ":lapsed",
                };
                format!("{}{cause}", entry.lease)
            }));
            format!("reports [{reports}] returns [{returns}]")
        }
        ToLeader::Drain { deadline, .. } => format!("drain {deadline:?}"),
    }
}

fn render(output: &Output) -> String {
    match output {
        Output::Connect { endpoint: None } => "connect".to_string(),
        Output::Connect { endpoint: Some(endpoint) } => format!("connect {endpoint}"),
        Output::Disconnect => "disconnect".to_string(),
        Output::Send(message) => render_message(message),
        Output::Start(lease) => format!("start {}", lease.id),
        Output::Cancel(id) => format!("cancel {id}"),
        Output::WritesEnd(end) => format!("writes end {}", end.since_origin().as_millis()),
        Output::CheckCredentials => "check credentials".to_string(),
        Output::Exit(exit) => format!("exit {exit:?}"),
        Output::Event(Event::Welcomed { term, .. }) => format!("welcomed {}/{}", term.election, term.number),
        Output::Event(Event::Lost { .. }) => "lost".to_string(),
        Output::Event(Event::SentAway { .. }) => "sent away".to_string(),
        Output::Event(Event::Lapsed) => "lapsed".to_string(),
        Output::Event(Event::StaleTerm { lease, .. }) => format!("stale {lease}"),
        Output::Event(Event::ShareLapsed) => "share lapsed".to_string(),
        Output::Event(Event::CredentialsRefused { .. }) => "credentials refused".to_string(),
        Output::Event(Event::CredentialsAccepted { .. }) => "credentials accepted".to_string(),
        Output::Event(Event::Rejected { why }) => format!("rejected {why}"),
    }
}

/// Runs lines of `MILLISECONDS | input | expected outputs`.
pub(super) fn check(script: &str) -> Session {
    let mut session = Session::new(config(), 1);
    assert_eq!(session.poll(), Some(Output::Connect { endpoint: None }));
    assert_eq!(session.poll(), None);
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let [at, fact, expected] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("line {line:?}")
        };
        let now = Time::from_origin(Duration::from_millis(at.parse().expect("a time")));
        match input(fact) {
            None => session.tick(now),
            Some(input) => session.handle(now, input),
        }
        let mut got = Vec::new();
        while let Some(output) = session.poll() {
            got.push(render(&output));
        }
        assert_eq!(got.join(", "), expected, "after {line:?}");
        if let Some(deadline) = session.next_deadline() {
            assert!(deadline > now, "a deadline in the past after {line:?}");
        }
    }
    session
}
