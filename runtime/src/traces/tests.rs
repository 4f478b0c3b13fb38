use super::export::{BATCH_MAX, LAST_WITHIN};
use super::recorder::QUEUE_MAX;
use super::variables::Variables;
use super::*;
use crate::shutdown::Shutdown;
use crate::tls::tests::certificates::{Authority, Files, Leaf};
use crate::tls::{Protocol, ServerFlags, ServerTls};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Code, Request, Response, Status};

const SERVICE: &str = "a-service";

fn service() -> Service {
    Service { name: SERVICE, instance: "one".to_owned(), version: "1" }
}

/// A collector that answers what it is told to, in turn, and then takes everything.
#[derive(Clone, Default)]
struct Receiver {
    answers: Arc<Mutex<Vec<Status>>>,
    /// How long each answer takes.
    slow: Duration,
    asked: watch::Sender<usize>,
    seen: watch::Sender<Vec<ExportTraceServiceRequest>>,
}

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.asked.send_modify(|asked| *asked += 1);
        if self.slow > Duration::ZERO {
            sleep(self.slow).await;
        }
        let told = self.answers.lock().unwrap().pop();
        if let Some(status) = told {
            self.seen.send_modify(|_| {});
            return Err(status);
        }
        self.seen.send_modify(|seen| seen.push(request.into_inner()));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Receiver {
    async fn listen(&self, tasks: &mut JoinSet<()>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = TraceServiceServer::new(self.clone());
        tasks.spawn(async move {
            let server = tonic::transport::Server::builder().add_service(server);
            server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
        });
        port
    }

    /// The same, over TLS.
    async fn listen_over_tls(&self, tls: Arc<ServerTls>, tasks: &mut JoinSet<()>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (pipes, connections) = mpsc::channel(1);
        let server = TraceServiceServer::new(self.clone());
        tasks.spawn(async move {
            let server = tonic::transport::Server::builder().add_service(server);
            server.serve_with_incoming(ReceiverStream::new(connections).map(Ok::<_, std::io::Error>)).await.unwrap();
        });
        tasks.spawn(async move {
            let mut carriers = JoinSet::new();
            loop {
                let (stream, from) = listener.accept().await.unwrap();
                let Some((mut stream, _peer)) = tls.handshake(stream, Some(from), Protocol::Http2).await else {
                    continue;
                };
                let (near, mut far) = tokio::io::duplex(1 << 16);
                carriers.spawn(async move { tokio::io::copy_bidirectional(&mut stream, &mut far).await });
                pipes.send(near).await.unwrap();
            }
        });
        port
    }

    async fn spans(&self, count: usize) -> Vec<opentelemetry_proto::tonic::trace::v1::Span> {
        let all = |seen: &Vec<ExportTraceServiceRequest>| {
            let scopes = seen.iter().flat_map(|request| &request.resource_spans).flat_map(|of| &of.scope_spans);
            scopes.flat_map(|scope| scope.spans.clone()).collect::<Vec<_>>()
        };
        let mut seen = self.seen.subscribe();
        all(&seen.wait_for(|seen| all(seen).len() >= count).await.unwrap())
    }
}

fn span(recorder: &Recorder, name: &'static str) -> Span {
    let now = Instant::now();
    Span {
        context: Context { trace: trace_of(&name), span: recorder.span_id() },
        parent: None,
        name: name.into(),
        kind: Kind::Internal,
        start: now,
        end: now,
        attributes: vec![("n", 7_u32.into()), ("text", "x".into()), ("flag", true.into())],
        failure: Some("why".to_owned()),
    }
}

#[test]
fn traceparents_read_as_they_are_written_and_nothing_else_does() {
    let (recorder, _open, _spans) = Recorder::to_memory(Ratio::ALL);
    let context = Context { trace: recorder.trace_id(), span: recorder.span_id() };
    assert_eq!(Incoming::parse(&context.traceparent()), Some(Incoming { context, sampled: true }));
    let example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    assert!(!Incoming::parse(example).unwrap().sampled);
    assert!(Incoming::parse(&format!("cc{}-what-the-future-brings", &example[2..])).is_some());
    for bad in [
        "",
        "00",
        &example[1..],
        &example.to_uppercase(),
        &format!("{example}-more"),
        &format!("ff{}", &example[2..]),
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e47é6-00f067aa0ba902b7-01",
        "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-000f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-+1",
    ] {
        assert_eq!(Incoming::parse(bad), None, "{bad:?}");
    }
}

#[test]
fn a_ratio_covers_about_that_part_and_the_same_ones_everywhere() {
    let covered = |ratio: &str| {
        let ratio: Ratio = ratio.parse().unwrap();
        (0..10_000_u32).filter(|number| ratio.covers(&trace_of(number))).collect::<Vec<_>>()
    };
    assert_eq!((covered("0").len(), covered("1").len()), (0, 10_000));
    let some = covered("0.1");
    assert!((800..1200).contains(&some.len()), "{}", some.len());
    assert!(covered("0.01").iter().all(|number| some.contains(number)), "a smaller part is a part of a greater one");
    for bad in ["-0.1", "1.1", "NaN", "all", ""] {
        assert!(bad.parse::<Ratio>().is_err(), "{bad}");
    }
}

#[test]
fn endpoints_are_checked_before_anything_is_sent() {
    use clap::Parser;
    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        traces: Flags,
    }
    let settings = |arguments: &[&str]| {
        let program = Program::try_parse_from([&["program"], arguments].concat()).map_err(|error| error.to_string())?;
        program.traces.check().map_err(|error| error.to_string())?;
        Ok::<_, String>(program.traces.settings())
    };
    assert_eq!(settings(&[]), Ok(None));
    for good in ["http://127.0.0.1:4317", "http://[::1]:4317/", "http://localhost:4317", "https://collector:4317"] {
        assert!(settings(&["--otlp-endpoint", good]).unwrap().is_some(), "{good}");
    }
    let plain = ["--otlp-endpoint", "http://collector.monitoring:4317"];
    assert!(settings(&plain).unwrap_err().contains("--otlp-insecure"));
    assert!(settings(&[&plain[..], &["--otlp-insecure"]].concat()).unwrap().is_some());
    for bad in ["collector:4317", "ftp://127.0.0.1", "http://127.0.0.1:4317/v1/traces", "http://me:secret@127.0.0.1:1"]
    {
        assert!(settings(&["--otlp-endpoint", bad]).unwrap_err().contains("expected http://HOST:PORT"), "{bad}");
    }
    assert!(settings(&["--otlp-ca", "ca.pem"]).unwrap_err().contains("--otlp-endpoint"));
    let ca = |url| ["--otlp-endpoint", url, "--otlp-ca", "/nowhere/ca.pem"];
    assert!(settings(&ca("https://127.0.0.1:1")).unwrap_err().contains("/nowhere/ca.pem"));
    assert!(settings(&ca("http://127.0.0.1:1")).unwrap_err().contains("--otlp-ca needs"));
}

/// Returns the settings from OpenTelemetry's variables, without a flag, in the form `NAME=value NAME=value`.
fn by_variables(text: &str) -> Result<Option<Settings>, String> {
    let get = |name: &str| {
        let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(of, _)| *of == name).map(|(_, value)| value.to_owned()).next()
    };
    let none = Flags { otlp_endpoint: None, otlp_ca: None, otlp_insecure: false, trace_sample: None };
    none.resolve(&Variables::of(&get)).map_err(|error| error.to_string())
}

#[test]
fn variables_of_opentelemetry_count_where_no_flag_is_given() {
    const ON: &str = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317";
    for (variables, endpoint) in [
        ("", None),
        ("OTEL_EXPORTER_OTLP_ENDPOINT=", None),
        (ON, Some("http://127.0.0.1:4317/")),
        (&format!("{ON} OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://traces:1"), Some("https://traces:1/")),
        ("OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317", Some("https://collector:4317/")),
        ("OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317 OTEL_EXPORTER_OTLP_INSECURE=true", Some("http://collector:4317/")),
        (
            &format!("{ON} OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_COMPRESSION=gzip"),
            Some("http://127.0.0.1:4317/"),
        ),
        (
            &format!("{ON} OTEL_EXPORTER_OTLP_PROTOCOL=http/json OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc"),
            Some("http://127.0.0.1:4317/"),
        ),
        (&format!("{ON} OTEL_TRACES_EXPORTER=none"), None),
        (&format!("{ON} OTEL_SDK_DISABLED=true"), None),
        ("OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", None),
    ] {
        let settings = by_variables(variables).unwrap_or_else(|error| panic!("{variables}: {error}"));
        assert_eq!(settings.map(|settings| settings.endpoint.to_string()).as_deref(), endpoint, "{variables}");
    }
    for (variables, word) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317", "OTEL_EXPORTER_OTLP_INSECURE"),
        (&format!("{ON} OTEL_EXPORTER_OTLP_INSECURE=maybe"), "true or false"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1/v1/traces", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
        (&format!("{ON} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"), "expected grpc"),
        (&format!("{ON} OTEL_EXPORTER_OTLP_COMPRESSION=zstd"), "gzip or none"),
        (&format!("{ON} OTEL_EXPORTER_OTLP_TIMEOUT=10s"), "milliseconds"),
        (&format!("{ON} OTEL_EXPORTER_OTLP_CLIENT_KEY=/key.pem"), "not supported"),
        (&format!("{ON} OTEL_TRACES_EXPORTER=zipkin"), "OTEL_TRACES_EXPORTER"),
        (&format!("{ON} OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere/ca.pem"), "needs an https:// address"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT=https://c OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere/ca.pem", "/nowhere/ca.pem"),
        (&format!("{ON} OTEL_TRACES_SAMPLER=xray"), "always_on"),
        (&format!("{ON} OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=2"), "OTEL_TRACES_SAMPLER_ARG"),
    ] {
        let error = by_variables(variables).unwrap_err();
        assert!(error.contains(word), "{variables}: {error}");
    }
    for (sampler, ratio) in [
        ("OTEL_TRACES_SAMPLER=", Ratio::default()),
        ("OTEL_TRACES_SAMPLER=always_on", Ratio::ALL),
        ("OTEL_TRACES_SAMPLER=parentbased_always_off", Ratio::NONE),
        ("OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=0.5", "0.5".parse().unwrap()),
        ("OTEL_TRACES_SAMPLER=traceidratio", Ratio::ALL),
    ] {
        assert_eq!(by_variables(&format!("{ON} {sampler}")).unwrap().unwrap().sample, ratio, "{sampler}");
    }
}

#[tokio::test]
async fn spans_arrive_with_everything_they_carry_and_the_end_waits_for_them() {
    let (receiver, mut tasks) = (Receiver::default(), JoinSet::new());
    let settings = Settings::to_loopback(receiver.listen(&mut tasks).await, Ratio::ALL);
    let (counts, shutdown) = (Counts::default(), Shutdown::new());
    let (recorder, open, sending) = start(&settings, service(), counts.clone(), shutdown.clone()).unwrap();
    let first = span(&recorder, "first");
    recorder.record(first.clone());
    recorder.record(Span {
        parent: Some(first.context.span),
        kind: Kind::Client,
        failure: None,
        ..span(&recorder, "second")
    });
    drop(open);
    shutdown.request();
    sending.await.unwrap();
    let spans = receiver.spans(2).await;
    assert_eq!(spans.iter().map(|span| span.name.as_str()).collect::<Vec<_>>(), ["first", "second"]);
    assert_eq!(spans[0].trace_id, first.context.trace.to_bytes());
    assert_eq!(spans[1].parent_span_id, first.context.span.to_bytes());
    assert_eq!(spans[0].attributes.len(), 3);
    assert_eq!(spans[0].status.as_ref().unwrap().message, "why");
    assert_eq!(spans[1].status.as_ref().unwrap().code, 0);
    let resource = receiver.seen.borrow()[0].resource_spans[0].resource.clone().unwrap();
    assert!(format!("{resource:?}").contains(SERVICE));
    assert_eq!(counts.read(), (2, [0, 0, 0]));
}

#[tokio::test]
async fn spans_go_over_tls_to_a_collector_whose_authority_is_given_and_to_no_other() {
    let (files, ours, foreign) = (Files::new(), Authority::new(), Authority::new());
    let ca = files.write("ca.crt", &ours.pem());
    let (receiver, mut tasks) = (Receiver::default(), JoinSet::new());
    for (authority, taken) in [(&foreign, 0), (&ours, 1)] {
        let files = Files::new();
        let flags = ServerFlags {
            client_ca: None,
            ..files.server_flags(authority, &authority.leaf(Leaf::server("localhost")))
        };
        let tls = ServerTls::open(&flags).await.unwrap().unwrap();
        let port = receiver.listen_over_tls(tls, &mut tasks).await;
        let endpoint = format!("https://localhost:{port}").parse().unwrap();
        let flags = Flags {
            otlp_endpoint: Some(endpoint),
            otlp_ca: Some(ca.clone()),
            otlp_insecure: false,
            trace_sample: Some(Ratio::ALL),
        };
        flags.check().unwrap();
        let (counts, shutdown) = (Counts::default(), Shutdown::new());
        let settings = flags.settings().unwrap();
        let (recorder, open, sending) = start(&settings, service(), counts.clone(), shutdown.clone()).unwrap();
        recorder.record(span(&recorder, "secret"));
        drop(open);
        shutdown.request();
        sending.await.unwrap();
        assert_eq!(counts.read(), (taken, [0, 0, 1 - taken]));
    }
    assert_eq!(receiver.spans(1).await.len(), 1);
}

#[tokio::test]
async fn what_may_pass_is_sent_again_and_what_may_not_is_dropped() {
    let (receiver, mut tasks) = (Receiver::default(), JoinSet::new());
    let settings = Settings::to_loopback(receiver.listen(&mut tasks).await, Ratio::ALL);
    let (counts, shutdown) = (Counts::default(), Shutdown::new());
    let (recorder, open, sending) = start(&settings, service(), counts.clone(), shutdown.clone()).unwrap();
    let mut sent = JoinSet::new();
    sent.spawn(async move { sending.await.unwrap() });
    receiver.answers.lock().unwrap().push(Status::unavailable("not now"));
    recorder.record(span(&recorder, "again"));
    assert_eq!(receiver.spans(1).await[0].name, "again");
    receiver.answers.lock().unwrap().push(Status::new(Code::ResourceExhausted, "larger than max"));
    recorder.record(span(&recorder, "refused"));
    // Once it is refused, nothing more can join its batch.
    receiver.seen.subscribe().wait_for(|_| receiver.answers.lock().unwrap().is_empty()).await.unwrap();
    recorder.record(span(&recorder, "after"));
    let names: Vec<String> = receiver.spans(2).await.into_iter().map(|span| span.name).collect();
    assert_eq!(names, ["again", "after"]);
    drop(open);
    sent.join_next().await.unwrap().unwrap();
    assert_eq!(counts.read(), (2, [0, 1, 0]));
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_is_away_costs_a_bounded_queue_and_does_not_hold_up_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = Settings::to_loopback(listener.local_addr().unwrap().port(), Ratio::ALL);
    drop(listener);
    let (counts, shutdown) = (Counts::default(), Shutdown::new());
    let (recorder, open, sending) = start(&settings, service(), counts.clone(), shutdown.clone()).unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { sending.await.unwrap() });
    let all = 3 * QUEUE_MAX;
    for _ in 0..all {
        recorder.record(span(&recorder, "lost"));
        tokio::task::yield_now().await;
    }
    let (exported, [full, rejected, _]) = counts.read();
    assert_eq!((exported, rejected), (0, 0));
    assert!(full as usize >= all - 2 * QUEUE_MAX, "{full} of {all}");
    shutdown.request();
    drop(open);
    tasks.join_next().await.unwrap().unwrap();
    let (exported, dropped) = counts.read();
    assert_eq!((exported, dropped.iter().sum::<u64>()), (0, all as u64));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_all_that_is_recorded_ends_the_tries_without_any_request_to_stop() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = Settings::to_loopback(listener.local_addr().unwrap().port(), Ratio::ALL);
    drop(listener);
    let counts = Counts::default();
    let (recorder, open, sending) = start(&settings, service(), counts.clone(), Shutdown::new()).unwrap();
    recorder.record(span(&recorder, "lost"));
    drop(open);
    timeout(Duration::from_secs(600), sending).await.expect("it ends by itself").unwrap();
    assert_eq!(counts.read(), (0, [0, 0, 1]));
}

#[tokio::test(start_paused = true)]
async fn a_slow_collector_has_one_limit_for_all_that_is_left_at_the_end() {
    let slow = LAST_WITHIN * 3 / 4;
    let (receiver, mut tasks) = (Receiver { slow, ..Receiver::default() }, JoinSet::new());
    let settings = Settings::to_loopback(receiver.listen(&mut tasks).await, Ratio::ALL);
    let (counts, shutdown) = (Counts::default(), Shutdown::new());
    let (recorder, open, sending) = start(&settings, service(), counts.clone(), shutdown.clone()).unwrap();
    for _ in 0..4 * BATCH_MAX {
        recorder.record(span(&recorder, "slow"));
    }
    let begun = Instant::now();
    drop(open);
    shutdown.request();
    sending.await.unwrap();
    assert!(begun.elapsed() < LAST_WITHIN + Duration::from_millis(100), "{:?}", begun.elapsed());
    let (exported, [full, rejected, stopped]) = counts.read();
    assert!(stopped > 0, "all {exported} of them went");
    assert_eq!((full, rejected, exported + stopped), (0, 0, 4 * BATCH_MAX as u64));
}

#[tokio::test(start_paused = true)]
async fn a_request_under_way_at_the_end_has_the_same_limit() {
    let (receiver, mut tasks) = (Receiver { slow: Duration::from_secs(3600), ..Receiver::default() }, JoinSet::new());
    let settings = Settings::to_loopback(receiver.listen(&mut tasks).await, Ratio::ALL);
    let (counts, shutdown) = (Counts::default(), Shutdown::new());
    let (recorder, open, sending) = start(&settings, service(), counts.clone(), shutdown.clone()).unwrap();
    let mut sent = JoinSet::new();
    sent.spawn(async move { sending.await.unwrap() });
    recorder.record(span(&recorder, "asked"));
    receiver.asked.subscribe().wait_for(|asked| *asked > 0).await.unwrap();
    let begun = Instant::now();
    shutdown.request();
    drop(open);
    sent.join_next().await.unwrap().unwrap();
    assert!(begun.elapsed() < LAST_WITHIN + Duration::from_millis(100), "{:?}", begun.elapsed());
    assert_eq!(counts.read(), (0, [0, 0, 1]));
}
