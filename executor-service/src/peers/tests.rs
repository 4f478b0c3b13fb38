use super::*;
use crate::address::is_loopback;
use std::sync::Mutex;

type Answer = Result<Vec<IpAddr>, String>;

type Table = Arc<Mutex<(Answer, Vec<String>)>>;

/// A resolver whose table the test can change, and its questions.
fn table() -> (Resolver, Table) {
    let table: Table = Arc::new(Mutex::new((Ok(Vec::new()), Vec::new())));
    let shared = Arc::clone(&table);
    let resolver = Resolver::through(move |host, port| {
        let (answer, asked) = &mut *shared.lock().unwrap();
        asked.push(format!("{host}:{port}"));
        std::future::ready(answer.clone()).boxed()
    });
    (resolver, table)
}

fn ips(texts: &[&str]) -> Answer {
    Ok(texts.iter().map(|text| text.parse().unwrap()).collect())
}

fn peers(resolver: Resolver, graph: &[&str], insecure: bool) -> Peers {
    Peers::new(
        Connector::network(runtime::tls::Caller::plaintext()),
        resolver,
        graph.iter().map(|&text| text.to_owned()).collect(),
        insecure,
    )
}

#[test]
fn names_and_addresses_are_told_apart() {
    assert_eq!(Peer::parse("a:1"), Ok(Peer::Address("a:1".to_owned())));
    assert_eq!(Peer::parse("dns:///graph.ns.svc:7450"), Ok(Peer::Name { host: "graph.ns.svc".to_owned(), port: 7450 }));
    for bad in
        ["dns:///", "dns:///graph", "dns:///graph:0", "dns://8.8.8.8/graph:1", "dns:graph:1", "dns:///http://graph:1"]
    {
        Peer::parse(bad).unwrap_err();
    }
    assert!(Peer::parse("dns:///[::1]:1").unwrap_err().contains("not a name"));
}

#[tokio::test]
async fn a_name_is_asked_for_at_each_attempt_and_each_of_its_addresses_has_its_turn() {
    let (resolver, table) = table();
    let mut peers = peers(resolver, &["dns:///graph:7"], true);
    table.lock().unwrap().0 = ips(&["10.0.0.2", "10.0.0.1", "10.0.0.2", "fd00::1"]);
    let mut tried = Vec::new();
    for _ in 0..4 {
        tried.push(peers.next(Time::ZERO).1.address().await.unwrap());
    }
    assert_eq!(tried, ["10.0.0.1:7", "10.0.0.2:7", "[fd00::1]:7", "10.0.0.1:7"]);
    // All replicas have moved.
    table.lock().unwrap().0 = ips(&["10.0.0.9"]);
    assert_eq!(peers.next(Time::ZERO).1.address().await, Ok("10.0.0.9:7".to_owned()));
    for (answer, why) in [(ips(&[]), "graph has no address"), (Err("gone".to_owned()), "graph has no address: gone")] {
        table.lock().unwrap().0 = answer;
        assert_eq!(peers.next(Time::ZERO).1.address().await, Err(why.to_owned()));
    }
    assert_eq!(table.lock().unwrap().1, vec!["graph:7"; 7]);
}

#[tokio::test]
async fn names_and_addresses_take_turns() {
    let (resolver, table) = table();
    table.lock().unwrap().0 = ips(&["10.0.0.1", "10.0.0.2"]);
    let mut peers = peers(resolver, &["dns:///graph:7", "b:8"], true);
    let mut tried = Vec::new();
    for _ in 0..4 {
        let (text, target) = peers.next(Time::ZERO);
        tried.push((text, target.address().await.unwrap()));
    }
    let expected = [("dns:///graph:7", "10.0.0.1:7"), ("b:8", "b:8"), ("dns:///graph:7", "10.0.0.2:7"), ("b:8", "b:8")];
    assert_eq!(tried, expected.map(|(text, address)| (text.to_owned(), address.to_owned())));
}

#[tokio::test]
async fn plaintext_stays_on_this_machine_whatever_a_name_resolves_to() {
    let (resolver, table) = table();
    let mut peers = peers(resolver, &["dns:///localhost:7"], false);
    table.lock().unwrap().0 = ips(&["127.0.0.1"]);
    assert_eq!(peers.next(Time::ZERO).1.address().await, Ok("127.0.0.1:7".to_owned()));
    table.lock().unwrap().0 = ips(&["10.0.0.1"]);
    assert!(peers.next(Time::ZERO).1.address().await.unwrap_err().contains("--insecure"));
    assert!(peers.hinted("10.0.0.1:7").unwrap_err().contains("--insecure"));
    assert!(peers.hinted("[::1]:7").is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_does_not_answer_holds_nothing_up_for_long() {
    let resolver = Resolver::through(|_, _| std::future::pending().boxed());
    let why = peers(resolver, &["dns:///graph:7"], true).next(Time::ZERO).1.address().await.unwrap_err();
    assert_eq!(why, "graph was not resolved within 5s");
}

#[tokio::test]
async fn this_machine_knows_itself() {
    let mut peers = peers(Resolver::system(), &["dns:///localhost:7"], false);
    let address = peers.next(Time::ZERO).1.address().await.unwrap();
    assert!(is_loopback(&address), "{address}");
}

#[tokio::test]
async fn what_was_silent_comes_after_the_others_for_a_while() {
    let (resolver, table) = table();
    table.lock().unwrap().0 = ips(&["10.0.0.1", "10.0.0.2"]);
    let at = |seconds| Time::from_origin(Duration::from_secs(seconds));
    let mut named = peers(resolver.clone(), &["dns:///graph:7"], true);
    named.went_silent(at(0), "10.0.0.1:7");
    for _ in 0..3 {
        assert_eq!(named.next(at(1)).1.address().await.as_deref(), Ok("10.0.0.2:7"));
    }
    named.went_silent(at(1), "10.0.0.2:7");
    named.next(at(1)).1.address().await.expect("where all are silent, all are tried");
    let mut listed = peers(resolver, &["a:1", "b:1"], true);
    listed.went_silent(at(0), "a:1");
    let tried = |peers: &mut Peers, seconds| (0..4).map(|_| peers.next(at(seconds)).0).collect::<Vec<_>>();
    assert_eq!(tried(&mut listed, 3), ["b:1", "b:1", "b:1", "b:1"]);
    assert_eq!(tried(&mut listed, 4), ["a:1", "b:1", "a:1", "b:1"]);
    listed.went_silent(at(4), "a:1");
    assert!(listed.is_silent(at(11), "a:1") && !listed.is_silent(at(12), "a:1"), "twice as long");
    listed.answered("a:1");
    assert!(!listed.is_silent(at(11), "a:1"));
}
