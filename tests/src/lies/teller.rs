//! Chooses the answer to each request of a collector.

use super::answer::{Asked, Form, Status, Wrong};
use super::document::{self, Defect};
use super::encode;
use super::members::{Member, Row, Turns};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Uri, header};
use kube::Client;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// The suffix of the groups of the catalogue.
pub(super) const DOMAIN: &str = "lies.test";
/// The one resource of each group.
pub(super) const RESOURCE: &str = "things";
/// The time for which a watch stays open after its wrong event.
const EVENTS_STAY: Duration = Duration::from_secs(3);
/// The time for which one kind sends events from another time before the next kind does.
const EVENTS_TURN: Duration = Duration::from_secs(6);
/// The collection of APIService objects, which name the groups of aggregated API servers.
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// A selector that matches no object.
const NOTHING: &str = "labelSelector=lies.test%2Fnone%3Dhere";
const CONFIGMAPS: &str = "/api/v1/configmaps";
const RESPONSE_MAX_BYTES: usize = 16 << 20;

/// The requests that get wrong answers in one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    /// The question about one owner: a list of its name, or a GET. Each [`Setting`] has its own kind.
    Names,
    /// The pages of a collection, from the start.
    Pages,
    /// The pages of a collection, after an honest list and a watch that expires.
    Again,
    /// The initial events of a watch, from the start.
    Initial,
    /// The events of a watch, after an honest list.
    Events,
    /// The pages of a collection, the events of a watch, and the question about the owner.
    All,
    /// Discovery, after an honest start: the documents of single versions, and the list of groups.
    Resources,
    /// The aggregated documents of discovery, after an honest start.
    Document,
    /// No answer is made up. Two stores that disagree answer all requests.
    Members,
}

/// A further defect of a kind of [`Told::Names`], besides the answers to the question about the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Lists and watches get 429.
    Refused,
    /// Lists and watches show no objects.
    Hidden,
    /// No further defect.
    Open,
    /// The kind belongs to an aggregated API server, and lists show no objects. Only a GET shows the owner.
    Aggregated,
    /// Discovery shows the kind without the verbs list and watch.
    OnlyGet,
}

/// The wrong answers that one collector gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    pub told: Told,
    /// Whether the lane has the answers from another time of the store, for which a collector may stop. Otherwise it
    /// has all others.
    pub leaps: bool,
}

impl Lane {
    /// Returns the lanes of all collectors.
    pub fn all() -> Vec<Lane> {
        let lanes = Told::ALL.iter().flat_map(|&told| [false, true].map(|leaps| Lane { told, leaps }));
        // Discovery has no positions, and the two stores have the same one.
        lanes.filter(|lane| !lane.leaps || !lane.told.is_apart()).collect()
    }

    /// Returns the namespace whose dependents the lane's collector sees.
    pub(super) fn namespace(self) -> String {
        format!("{:?}{}", self.told, if self.leaps { "-leaps" } else { "" }).to_lowercase()
    }

    /// Returns whether an answer belongs to the lane.
    pub(super) fn has(self, wrong: &Wrong) -> bool {
        self.told.is_apart() || wrong.leaps() == self.leaps
    }
}

impl Told {
    const ALL: [Told; 9] = [
        Told::Names,
        Told::Pages,
        Told::Again,
        Told::Initial,
        Told::Events,
        Told::All,
        Told::Resources,
        Told::Document,
        Told::Members,
    ];

    /// Returns whether one lane has all answers, those from another time included.
    fn is_apart(self) -> bool {
        matches!(self, Told::Resources | Told::Document | Told::Members)
    }

    /// Returns whether the lies begin after an honest start.
    fn starts_honest(self) -> bool {
        matches!(self, Told::Again | Told::Resources | Told::Document)
    }
}

impl Setting {
    pub const ALL: [Setting; 5] =
        [Setting::Refused, Setting::Hidden, Setting::Open, Setting::Aggregated, Setting::OnlyGet];

    pub(super) fn group(self) -> String {
        format!("{self:?}.{DOMAIN}").to_lowercase()
    }

    /// Returns the form of the question about the owner.
    pub(super) fn form(self) -> Form {
        if matches!(self, Setting::Aggregated | Setting::OnlyGet) { Form::Object } else { Form::List }
    }

    fn of(group: &str) -> Option<Setting> {
        Setting::ALL.into_iter().find(|setting| setting.group() == group)
    }
}

/// The progress of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The collectors start. Lanes without an honest start lie already.
    Start,
    /// All lanes lie.
    Lies,
    Truth,
}

/// The data that all tellers share.
#[derive(Debug)]
pub(super) struct Facts {
    /// The wrong answers to questions about one owner, by number.
    pub(super) named: Vec<Wrong>,
    /// The wrong answers about whole kinds, by number.
    pub(super) kinds: Vec<Wrong>,
    /// The owners' uids by group, namespace and name.
    pub(super) uids: HashMap<(String, String, String), String>,
    /// A position before the owners were created.
    pub(super) below: String,
}

/// The group of the kind with this number.
pub(super) fn group_of(number: usize) -> String {
    format!("g{number}.{DOMAIN}")
}

/// The group whose discovery has this defect.
pub(super) fn group_with(defect: Defect) -> String {
    format!("d-{defect:?}.{DOMAIN}").to_lowercase()
}

/// The group of the kind with this distribution between two stores.
pub(super) fn group_in(row: Row) -> String {
    format!("m-{row:?}.{DOMAIN}").to_lowercase()
}

/// The number of times that each lie was told, by group and by the owner's name.
pub(super) type Counts = Arc<Mutex<HashMap<(String, String), usize>>>;

/// Tells one collector's lies.
#[derive(Clone)]
pub struct Teller {
    lane: Lane,
    facts: Arc<Facts>,
    /// The API server with an older copy of the data, and the one with a copy that lacks owners.
    others: [Client; 2],
    turns: Arc<Turns>,
    begun: Instant,
    /// The number of answers with a discovery document so far.
    documents: Arc<AtomicUsize>,
    counts: Counts,
    phase: watch::Receiver<Phase>,
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Teller").field("lane", &self.lane).finish_non_exhaustive()
    }
}

/// A request about the resource of a group.
#[derive(Debug)]
struct Question {
    group: String,
    namespace: String,
    /// The name in a GET, or in a list of one name.
    name: Option<String>,
    form: Form,
}

/// The handling of a request.
enum Turn {
    Pass,
    Tell(Wrong, Form, String),
    /// Forwards the request with this URI. The response ends with the phase.
    Forward(String),
    /// Forwards the request for a short time.
    Briefly,
    /// Forwards the request to the store that lacks owners.
    Ask(String),
    Refuse(u16, &'static str),
    /// Ends a watch, because its position is too old.
    Expire,
}

impl Teller {
    pub(super) fn new(
        lane: Lane,
        facts: Arc<Facts>,
        others: [Client; 2],
        phase: watch::Receiver<Phase>,
        counts: Counts,
    ) -> Teller {
        Teller {
            lane,
            facts,
            others,
            turns: Arc::default(),
            begun: Instant::now(),
            documents: Arc::default(),
            counts,
            phase,
        }
    }

    /// Returns the answer to a request, for [`crate::proxy::Proxy::respond`].
    pub(super) fn respond(&self, parts: Parts, upstream: Client) -> BoxFuture<'static, Option<Response>> {
        let teller = self.clone();
        async move { teller.answer(parts, upstream).await }.boxed()
    }

    async fn answer(&self, parts: Parts, upstream: Client) -> Option<Response> {
        if parts.method != Method::GET {
            return None;
        }
        let (path, query) = (parts.uri.path().to_owned(), parts.uri.query().unwrap_or_default().to_owned());
        // Each collector sees only the dependents in its own namespace.
        if path == CONFIGMAPS {
            let path = format!("/api/v1/namespaces/{}/configmaps", self.lane.namespace());
            return forward(&upstream, parts, &format!("{path}?{query}"), None).await;
        }
        if matches!(path.as_str(), "/api" | "/apis") {
            return self.document(parts, &path, &upstream).await;
        }
        if self.lane.told == Told::Names && path == API_SERVICES {
            return api_services(&upstream, parts, &query).await;
        }
        let phase = *self.phase.borrow();
        if phase == Phase::Truth {
            return None;
        }
        let question = question(&path, &query)?;
        let lies = phase == Phase::Lies || !self.lane.told.starts_honest();
        let turn = self.turn(&question, lies, &path, &query);
        if let Turn::Tell(_, _, name) | Turn::Ask(name) = &turn {
            self.count(&question.group, name);
        }
        match turn {
            Turn::Pass => None,
            Turn::Refuse(code, reason) => Some(refuse(code, reason)),
            Turn::Expire => Some(expire()),
            Turn::Forward(uri) => forward(&upstream, parts, &uri, Some(self.phase_ends())).await,
            Turn::Briefly => {
                let uri = parts.uri.to_string();
                forward(&upstream, parts, &uri, Some(sleep(EVENTS_STAY).boxed())).await
            }
            Turn::Tell(wrong, _, _) if wrong.status == Status::OtherStore => {
                let uri = parts.uri.to_string();
                forward(&self.others[0], parts, &uri, Some(self.phase_ends())).await
            }
            Turn::Ask(_) => {
                let uri = parts.uri.to_string();
                forward(&self.others[1], parts, &uri, Some(self.phase_ends())).await
            }
            Turn::Tell(wrong, form, name) => {
                let Question { group, namespace, .. } = question;
                let namespace = if namespace.is_empty() { self.lane.namespace() } else { namespace };
                let key = (group, namespace, name);
                let uid = self.facts.uids.get(&key).cloned().unwrap_or_default();
                let (group, namespace, name) = key;
                let position = position(&upstream).await.unwrap_or_default();
                let below = self.facts.below.clone();
                let asked = Asked { form, group, namespace, name, uid, position, below };
                let stays = if form == Form::Events { sleep(EVENTS_STAY).boxed() } else { self.phase_ends() };
                Some(encode::response(wrong, &asked, stays))
            }
        }
    }

    fn count(&self, group: &str, name: &str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((group.to_owned(), name.to_owned())).or_default() += 1;
    }

    /// Answers a request for a discovery document. Defects of the whole document alternate with defects of single
    /// groups.
    async fn document(&self, mut parts: Parts, path: &str, upstream: &Client) -> Option<Response> {
        if self.lane.told == Told::Resources {
            parts.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        }
        let phase = *self.phase.borrow();
        let lies = phase == Phase::Lies && matches!(self.lane.told, Told::Resources | Told::Document);
        let only_get = self.lane.told == Told::Names && phase != Phase::Truth;
        if path == "/api" || !(lies || only_get) {
            return forward(upstream, parts, path, None).await;
        }
        let (head, body) = forward(upstream, parts, path, None).await?.into_parts();
        let body = axum::body::to_bytes(body, RESPONSE_MAX_BYTES).await.ok()?;
        let Ok(mut document) = serde_json::from_slice::<Value>(&body) else {
            return Some(Response::from_parts(head, Body::from(body)));
        };
        let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|text| text.to_str().ok());
        let content_type = content_type.unwrap_or("application/json");
        if only_get {
            Defect::OnlyGet.put(&mut document, &Setting::OnlyGet.group());
            return Some(document::response(200, content_type, document.to_string()));
        }
        let fits = |defect: &&Defect| self.lane.told == Told::Document || defect.is_of_groups();
        let (of_one, whole) = Defect::ALL.split_at(Defect::OF_ONE_GROUP);
        let number = self.documents.fetch_add(1, Ordering::Relaxed);
        // The first of four documents has all defects of single groups. The others have one defect of the whole
        // document.
        if let Some(defect) = (!number.is_multiple_of(4)).then(|| whole[(number - 1 - number / 4) % whole.len()]) {
            self.count(&group_with(defect), "o");
            return Some(defect.whole(&document, content_type));
        }
        for defect in of_one.iter().filter(fits) {
            self.count(&group_with(*defect), "o");
            defect.put(&mut document, &group_with(*defect));
        }
        Some(document::response(200, content_type, document.to_string()))
    }

    fn turn(&self, question: &Question, lies: bool, path: &str, query: &str) -> Turn {
        if let Some(setting) = Setting::of(&question.group) {
            return if self.lane.told == Told::Names { self.named(setting, question, path, query) } else { Turn::Pass };
        }
        if let Some(&row) = Row::ALL.iter().find(|row| group_in(**row) == question.group) {
            return if self.lane.told == Told::Members { self.member(row, question) } else { Turn::Pass };
        }
        let number = question.group.strip_prefix('g').and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        let Some(&wrong) = number.and_then(|number| self.facts.kinds.get(number)).filter(|wrong| self.lane.has(wrong))
        else {
            return Turn::Pass;
        };
        let tell = |form: Form| {
            let name = question.name.clone().unwrap_or_else(|| "o".to_owned());
            if lies { Turn::Tell(wrong, form, name) } else { Turn::Pass }
        };
        let pages_only = || Turn::Refuse(400, "BadRequest");
        match (self.lane.told, question.form, question.name.is_some()) {
            (Told::Resources, Form::Resources, _) | (Told::All, Form::List | Form::Object, true) => tell(question.form),
            (Told::Pages | Told::Again | Told::Events | Told::All, Form::Initial, _) => pages_only(),
            (Told::Pages | Told::Again | Told::All, Form::List, false) => tell(Form::List),
            (Told::Initial, Form::Initial, _) => tell(Form::Initial),
            (Told::Events, Form::Events, _) if self.lane.leaps && !self.is_turn(wrong) => Turn::Briefly,
            (Told::Events | Told::All, Form::Events, _) => tell(Form::Events),
            (Told::Again, Form::Events, _) if lies => Turn::Expire,
            (Told::Again, Form::Events, _) => Turn::Forward(format!("{path}?{query}")),
            _ => Turn::Pass,
        }
    }

    /// Returns whether it is the turn of this lie. After an event from another time the collector lists everything
    /// again, and the other lies of the lane have to wait.
    fn is_turn(&self, wrong: Wrong) -> bool {
        let all: Vec<&Wrong> = self.facts.kinds.iter().filter(|wrong| self.lane.has(wrong)).collect();
        let turn = self.begun.elapsed().as_secs() / EVENTS_TURN.as_secs();
        all.get(usize::try_from(turn).unwrap_or(0) % all.len().max(1)) == Some(&&wrong)
    }

    fn member(&self, row: Row, question: &Question) -> Turn {
        match self.turns.next(row, question.form, question.name.is_some()) {
            Member::Right => Turn::Pass,
            Member::Other => Turn::Ask(question.name.clone().unwrap_or_default()),
            Member::Refuses => Turn::Refuse(429, "TooManyRequests"),
        }
    }

    fn named(&self, setting: Setting, question: &Question, path: &str, query: &str) -> Turn {
        let separator = if query.is_empty() { "" } else { "&" };
        let shows_nothing = || Turn::Forward(format!("{path}?{query}{separator}{NOTHING}"));
        let Some(name) = &question.name else {
            return match (setting, question.form) {
                (_, Form::Resources) | (Setting::Open, _) => Turn::Pass,
                (Setting::Refused, _) => Turn::Refuse(429, "TooManyRequests"),
                (Setting::Hidden | Setting::Aggregated | Setting::OnlyGet, _) => shows_nothing(),
            };
        };
        if setting == Setting::Aggregated && question.form == Form::List {
            return shows_nothing();
        }
        // The other names are those of absent owners. Honest answers about them keep the collector asking.
        let number = name.strip_prefix("o-").and_then(|number| number.parse::<usize>().ok());
        match number.and_then(|number| self.facts.named.get(number)) {
            Some(wrong) if self.lane.has(wrong) && !wrong.is_plausible(question.form) => {
                Turn::Tell(*wrong, question.form, name.clone())
            }
            Some(_) | None => Turn::Pass,
        }
    }

    fn phase_ends(&self) -> BoxFuture<'static, ()> {
        let mut phase = self.phase.clone();
        let now = *phase.borrow();
        async move {
            // An error means that the run has ended, and its last phase too.
            let _ended = phase.wait_for(|phase| *phase != now).await;
        }
        .boxed()
    }
}

/// Returns the request about the resource of a group, if it is one.
fn question(path: &str, query: &str) -> Option<Question> {
    let mut parts = path.strip_prefix("/apis/")?.split('/');
    let group = parts.next()?.to_owned();
    if !group.ends_with(DOMAIN) || parts.next()? != "v1" {
        return None;
    }
    let parameter = |name: &str| query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let is_true = |name: &str| parameter(name).is_some_and(|value| matches!(value, "true" | "1"));
    let rest: Vec<&str> = parts.collect();
    let (namespace, name) = match rest.as_slice() {
        [] => return Some(Question { group, namespace: String::new(), name: None, form: Form::Resources }),
        ["namespaces", namespace, RESOURCE] => (*namespace, None),
        ["namespaces", namespace, RESOURCE, name] => (*namespace, Some(*name)),
        [RESOURCE] => ("", None),
        _ => return None,
    };
    let selected = parameter("fieldSelector").and_then(|selector| selector.strip_prefix("metadata.name%3D"));
    let form = match (name, is_true("watch"), is_true("sendInitialEvents")) {
        (Some(_), _, _) => Form::Object,
        (None, true, true) => Form::Initial,
        (None, true, false) => Form::Events,
        (None, false, _) => Form::List,
    };
    let name = name.or(selected).map(str::to_owned);
    Some(Question { group, namespace: namespace.to_owned(), name, form })
}

/// Returns the current revision of the store.
async fn position(upstream: &Client) -> anyhow::Result<String> {
    let uri = format!("/api/v1/namespaces?limit=1&{NOTHING}");
    let answer: Value = upstream.request(Request::get(uri).body(Vec::new())?).await?;
    Ok(answer["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
}

/// Sends the request to a server, and passes its response on until `ends` is ready.
async fn forward(
    server: &Client,
    mut parts: Parts,
    uri: &str,
    ends: Option<BoxFuture<'static, ()>>,
) -> Option<Response> {
    parts.uri = uri.parse::<Uri>().ok()?;
    let request = Request::from_parts(parts, kube::client::Body::empty());
    let response = match server.send(request).await {
        Ok(response) => response,
        Err(error) => return Some(refuse_because(502, "BadGateway", &error.to_string())),
    };
    Some(match ends {
        None => response.map(Body::new),
        Some(ends) => response.map(|body| Body::from_stream(Body::new(body).into_data_stream().take_until(ends))),
    })
}

/// Returns the list of APIService objects, in which [`Setting::Aggregated`] belongs to an aggregated API server.
async fn api_services(upstream: &Client, parts: Parts, query: &str) -> Option<Response> {
    if query.contains("sendInitialEvents") {
        return Some(refuse(400, "BadRequest"));
    }
    if query.contains("watch=") {
        return None;
    }
    let uri = parts.uri.to_string();
    let (head, body) = forward(upstream, parts, &uri, None).await?.into_parts();
    let body = axum::body::to_bytes(body, RESPONSE_MAX_BYTES).await.ok()?;
    let Ok(mut list) = serde_json::from_slice::<Value>(&body) else {
        return Some(Response::from_parts(head, Body::from(body)));
    };
    let group = Setting::Aggregated.group();
    for item in list["items"].as_array_mut().into_iter().flatten() {
        if item["spec"]["group"] == group.as_str() {
            item["spec"]["service"] = json!({ "namespace": "default", "name": "beside" });
        }
    }
    let mut response = Response::new(Body::from(list.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Some(response)
}

fn refuse(code: u16, reason: &str) -> Response {
    refuse_because(code, reason, "refused by the proxy")
}

fn refuse_because(code: u16, reason: &str, message: &str) -> Response {
    let mut response = Response::new(Body::from(status(code, reason, message).to_string()));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::BAD_GATEWAY);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if code == 429 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn expire() -> Response {
    let event = json!({ "type": "ERROR", "object": status(410, "Expired", "too old resource version") });
    let mut response = Response::new(Body::from(Bytes::from(format!("{event}\n"))));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason,
        "code": code,
    })
}
