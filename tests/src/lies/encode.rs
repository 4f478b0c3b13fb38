//! Encodes a wrong answer as an HTTP response.

use super::answer::{Asked, Coding, Ending, Form, Items, Kind, Media, Status, Version, Wrong};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

const OTHER_UID: &str = "0b5e2f6e-0000-4000-8000-00000000beef";
const OTHER_NAME: &str = "another";
/// A resourceVersion above every revision that a test reaches.
const FUTURE: &str = "9007199254740991";
const META: &str = "meta.k8s.io/v1";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON: &str = "application/json";
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// The maximum size of a stored block of deflate.
const BLOCK_MAX_BYTES: usize = 0xffff;

/// The metadata of an object in an answer.
#[derive(Clone, Debug, Default)]
struct Meta {
    name: String,
    namespace: String,
    uid: String,
    version: String,
    ends_initial_events: bool,
}

/// The content of an answer, before its encoding as JSON or protobuf.
#[derive(Clone, Debug)]
enum Said {
    List { version: String, token: &'static str, remaining: Option<u64>, items: Vec<Meta> },
    Object(Meta),
    Events(Vec<(&'static str, Meta)>),
    Status { code: u16, reason: &'static str, name: String, group: String, resource: String },
    Resources(Value),
    Text(&'static str),
}

/// Encodes the answer. A watch stays open after its last event until `open` is ready.
pub(super) fn response(wrong: Wrong, asked: &Asked, open: BoxFuture<'static, ()>) -> Response {
    let (code, said) = said(wrong, asked);
    let (api_version, kind) = type_of(wrong.kind, asked.form, &said, &asked.group);
    let is_stream = matches!(said, Said::Events(_));
    let as_protobuf = matches!(wrong.media, Media::Protobuf | Media::ProtobufUnderJson);
    let body = match (&said, as_protobuf) {
        (Said::Text(text), _) => text.as_bytes().to_vec(),
        (Said::Resources(resources), _) => resources.to_string().into_bytes(),
        (said, true) => protobuf(said, &api_version, &kind),
        (said, false) => json_text(said, &api_version, &kind).into_bytes(),
    };
    let body = match wrong.coding {
        Coding::Identity => body,
        Coding::Gzip | Coding::GzipUndeclared => gzip(&body),
        Coding::GzipTwice => gzip(&gzip(&body)),
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    let stream_suffix = if is_stream { ";stream=watch" } else { "" };
    let media = match (wrong.media, &said) {
        (Media::Json, Said::Text(text)) if text.starts_with('<') => "text/html".to_owned(),
        (Media::Json, Said::Text(_)) => "text/plain; charset=utf-8".to_owned(),
        (Media::Json | Media::ProtobufUnderJson, _) => format!("{JSON}{stream_suffix}"),
        (Media::Protobuf | Media::JsonUnderProtobuf, _) => format!("{PROTOBUF}{stream_suffix}"),
        (Media::JsonUnderHtml, _) => "text/html".to_owned(),
        (Media::JsonUnderNothing, _) => String::new(),
    };
    if let Some(media) = HeaderValue::from_str(&media).ok().filter(|_| !media.is_empty()) {
        headers.insert(header::CONTENT_TYPE, media);
    }
    match code {
        301 | 302 => drop(headers.insert(header::LOCATION, HeaderValue::from_static("/apis/other.test/v1/gadgets"))),
        429 => drop(headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"))),
        _ => {}
    }
    if matches!(wrong.coding, Coding::Gzip | Coding::GzipTwice) {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if matches!(wrong.ending, Ending::Short) && !is_stream {
        headers.insert(header::CONTENT_LENGTH, body.len().max(2).into());
    }
    let whole = Bytes::from(body);
    let half = whole.slice(..whole.len() / 2);
    let broken = || Err(std::io::Error::other("the connection closes"));
    *response.body_mut() = match wrong.ending {
        Ending::Whole if is_stream => {
            let first = stream::iter([Ok::<_, std::io::Error>(whole)]);
            let rest = stream::once(open).filter_map(|()| std::future::ready(None));
            Body::from_stream(first.chain(rest))
        }
        Ending::Whole => Body::from(whole),
        Ending::Half => Body::from(half),
        Ending::Closed => Body::from_stream(stream::iter([Ok(half), broken()])),
        Ending::Short => Body::from_stream(stream::iter([Ok::<_, std::io::Error>(half)])),
    };
    response
}

fn said(wrong: Wrong, asked: &Asked) -> (u16, Said) {
    let version = match wrong.version {
        Version::Current => asked.position.clone(),
        Version::Zero => "0".to_owned(),
        Version::One => "1".to_owned(),
        Version::Below => asked.below.clone(),
        Version::Text => "abc".to_owned(),
        Version::Empty => String::new(),
        Version::Future => FUTURE.to_owned(),
    };
    if let Some(refused) = refusal(wrong, asked) {
        return refused;
    }
    let meta = |name: &str, uid: &str| Meta {
        name: name.to_owned(),
        namespace: asked.namespace.clone(),
        uid: uid.to_owned(),
        version: version.clone(),
        ends_initial_events: false,
    };
    let shown = match wrong.items {
        Items::Right | Items::Cut | Items::Rest => None,
        Items::Foreign => Some(meta(OTHER_NAME, OTHER_UID)),
        Items::Renamed => Some(meta(OTHER_NAME, &asked.uid)),
        Items::OtherUid => Some(meta(&asked.name, OTHER_UID)),
    };
    let said = match asked.form {
        Form::List => Said::List {
            token: if wrong.items == Items::Cut { "more" } else { "" },
            remaining: matches!(wrong.items, Items::Cut | Items::Rest).then_some(7),
            items: shown.into_iter().collect(),
            version,
        },
        Form::Object => match shown {
            Some(shown) if wrong.items != Items::Foreign => Said::Object(shown),
            shown => {
                let name = shown.map_or_else(|| asked.name.clone(), |shown| shown.name);
                return (if wrong.kind == Kind::Status { 200 } else { 404 }, not_found(&name, &asked.group, "things"));
            }
        },
        Form::Initial => {
            let bookmark = Meta { version, ends_initial_events: true, ..Meta::default() };
            let bookmark = (wrong.items != Items::Cut).then_some(("BOOKMARK", bookmark));
            Said::Events(shown.map(|shown| ("ADDED", shown)).into_iter().chain(bookmark).collect())
        }
        Form::Events => Said::Events(vec![match (wrong.items, shown) {
            (Items::OtherUid, Some(shown)) => ("MODIFIED", shown),
            (_, Some(shown)) => ("DELETED", shown),
            (Items::Cut, None) => ("DELETED", meta(&asked.name, "")),
            (Items::Rest, None) => ("BOOKMARK", Meta { version, ..Meta::default() }),
            (_, None) => ("DELETED", meta(&asked.name, &asked.uid)),
        }]),
        Form::Resources => Said::Resources(resources(wrong, &asked.group, &version, &asked.position)),
    };
    (200, said)
}

fn refusal(wrong: Wrong, asked: &Asked) -> Option<(u16, Said)> {
    let status = |code, reason| {
        let (name, group, resource) = (String::new(), String::new(), String::new());
        Some((code, Said::Status { code, reason, name, group, resource }))
    };
    match wrong.status {
        // The teller forwards such a request to the other store, and does not encode an answer.
        Status::Right | Status::OtherStore => None,
        Status::Moved301 => Some((301, Said::Text(""))),
        Status::Found302 => Some((302, Said::Text(""))),
        Status::Unauthorized401 => status(401, "Unauthorized"),
        Status::Forbidden403 => status(403, "Forbidden"),
        Status::Text404 => Some((404, Said::Text("404 page not found\n"))),
        Status::Html404 => Some((404, Said::Text("<html><body>404</body></html>"))),
        Status::Empty404 => status(404, "NotFound"),
        Status::OtherObject404 => Some((404, not_found(OTHER_NAME, &asked.group, "things"))),
        Status::OtherGroup404 => Some((404, not_found(&asked.name, "other.test", "things"))),
        Status::OtherKind404 => Some((404, not_found(&asked.name, &asked.group, "gadgets"))),
        Status::Exact404 => Some((404, not_found(&asked.name, &asked.group, "things"))),
        Status::Gone410 => status(410, "Expired"),
        Status::TooMany429 => status(429, "TooManyRequests"),
        Status::Internal500 => status(500, "InternalError"),
        Status::Unavailable503 => status(503, "ServiceUnavailable"),
    }
}

fn not_found(name: &str, group: &str, resource: &str) -> Said {
    let (name, group, resource) = (name.to_owned(), group.to_owned(), resource.to_owned());
    Said::Status { code: 404, reason: "NotFound", name, group, resource }
}

fn resources(wrong: Wrong, group: &str, version: &str, position: &str) -> Value {
    let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
    let things = |kind: &str, namespaced: bool, without: &[&str]| {
        let verbs: Vec<&str> = verbs.into_iter().filter(|verb| !without.contains(verb)).collect();
        json!({ "name": "things", "singularName": "thing", "namespaced": namespaced, "kind": kind, "verbs": verbs })
    };
    let shown = match wrong.items {
        Items::Right => json!([]),
        Items::Foreign => json!([{ "name": "gadgets", "namespaced": true, "kind": "Gadget", "verbs": verbs }]),
        Items::Renamed => json!([things("Gadget", true, &[])]),
        Items::OtherUid => json!([things("Thing", false, &[])]),
        Items::Cut => json!([things("Thing", true, &["list", "watch"])]),
        Items::Rest => json!([things("Thing", true, &["watch", "delete"])]),
    };
    let (api_version, kind) = match wrong.kind {
        Kind::Right => ("v1", "APIResourceList"),
        Kind::OtherGroup => ("other.test/v1", "APIResourceList"),
        Kind::OtherKind => ("v1", "GadgetList"),
        Kind::BareList => ("v1", "List"),
        Kind::Status => ("v1", "Status"),
        Kind::Table => (META, "Table"),
    };
    let version = if version == position { "v1" } else { version };
    json!({ "kind": kind, "apiVersion": api_version, "groupVersion": format!("{group}/{version}"), "resources": shown })
}

/// Returns `apiVersion` and `kind` of the answer.
fn type_of(kind: Kind, form: Form, said: &Said, group: &str) -> (String, String) {
    let is_list = form == Form::List && matches!(said, Said::List { .. });
    let is_status = matches!(said, Said::Status { .. });
    let (api_version, kind) = match (kind, is_list, is_status) {
        (Kind::Right | Kind::Status, _, true) | (Kind::Status, _, false) => ("v1".to_owned(), "Status"),
        (Kind::OtherGroup, _, true) => ("other.test/v1".to_owned(), "Status"),
        (Kind::Right, true, false) => (META.to_owned(), "PartialObjectMetadataList"),
        (Kind::Right, false, false) => (META.to_owned(), "PartialObjectMetadata"),
        (Kind::OtherGroup, true, false) => ("other.test/v1".to_owned(), "ThingList"),
        (Kind::OtherGroup, false, false) => ("other.test/v1".to_owned(), "Thing"),
        (Kind::OtherKind, true, _) => (format!("{group}/v1"), "GadgetList"),
        (Kind::OtherKind, false, _) => (format!("{group}/v1"), "Gadget"),
        (Kind::BareList, _, _) => ("v1".to_owned(), "List"),
        (Kind::Table, _, _) => (META.to_owned(), "Table"),
    };
    (api_version, kind.to_owned())
}

fn metadata(meta: &Meta) -> Value {
    let mut metadata = json!({ "resourceVersion": meta.version });
    for (field, text) in [("name", &meta.name), ("namespace", &meta.namespace), ("uid", &meta.uid)] {
        if !text.is_empty() {
            metadata[field] = json!(text);
        }
    }
    if meta.ends_initial_events {
        metadata["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
    }
    metadata
}

fn json_text(said: &Said, api_version: &str, kind: &str) -> String {
    let object = |meta: &Meta| json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata(meta) });
    match said {
        Said::List { version, token, remaining, items } => {
            let mut list = json!({ "resourceVersion": version });
            if !token.is_empty() {
                list["continue"] = json!(token);
            }
            if let Some(remaining) = remaining {
                list["remainingItemCount"] = json!(remaining);
            }
            let items: Vec<Value> = items
                .iter()
                .map(|meta| json!({ "kind": "PartialObjectMetadata", "apiVersion": META, "metadata": metadata(meta) }))
                .collect();
            json!({ "kind": kind, "apiVersion": api_version, "metadata": list, "items": items }).to_string()
        }
        Said::Object(meta) => object(meta).to_string(),
        Said::Events(events) => {
            let line = |(event, meta): &(&str, Meta)| format!("{}\n", json!({ "type": event, "object": object(meta) }));
            events.iter().map(line).collect()
        }
        Said::Status { code, reason, name, group, resource } => json!({
            "kind": kind, "apiVersion": api_version, "metadata": {}, "status": "Failure", "message": "a wrong answer",
            "reason": reason, "code": code, "details": details(name, group, resource),
        })
        .to_string(),
        Said::Resources(resources) => resources.to_string(),
        Said::Text(text) => (*text).to_owned(),
    }
}

fn details(name: &str, group: &str, resource: &str) -> Value {
    if resource.is_empty() { json!({}) } else { json!({ "name": name, "group": group, "kind": resource }) }
}

fn protobuf(said: &Said, api_version: &str, kind: &str) -> Vec<u8> {
    let object = |meta: &Meta| envelope(api_version, kind, &field(1, &object_meta(meta)));
    match said {
        Said::List { version, token, remaining, items } => {
            let mut list = [text(2, version), text(3, token)].concat();
            if let Some(remaining) = remaining {
                list.extend(number(4, *remaining));
            }
            let items = items.iter().flat_map(|meta| field(2, &field(1, &object_meta(meta))));
            let raw: Vec<u8> = field(1, &list).into_iter().chain(items).collect();
            envelope(api_version, kind, &raw)
        }
        Said::Object(meta) => object(meta),
        Said::Events(events) => {
            let frame = |(event, meta): &(&str, Meta)| {
                let event = [text(1, event), field(2, &field(1, &object(meta)))].concat();
                let length = u32::try_from(event.len()).unwrap_or(u32::MAX).to_be_bytes();
                [&length[..], &event].concat()
            };
            events.iter().flat_map(frame).collect()
        }
        Said::Status { code, reason, name, group, resource } => {
            let details = [text(1, name), text(2, group), text(3, resource)].concat();
            let status = [
                field(1, &[]),
                text(2, "Failure"),
                text(3, "a wrong answer"),
                text(4, reason),
                field(5, &details),
                number(6, u64::from(*code)),
            ];
            envelope(api_version, kind, &status.concat())
        }
        Said::Resources(_) | Said::Text(_) => Vec::new(),
    }
}

fn object_meta(meta: &Meta) -> Vec<u8> {
    let mut fields =
        [text(1, &meta.name), text(3, &meta.namespace), text(5, &meta.uid), text(6, &meta.version)].concat();
    if meta.ends_initial_events {
        fields.extend(field(12, &[text(1, INITIAL_EVENTS_END), text(2, "true")].concat()));
    }
    fields
}

/// Returns the prefix `k8s\0` and a `runtime.Unknown` with this content.
fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [text(1, api_version), text(2, kind)].concat();
    [&b"k8s\0"[..], &field(1, &type_meta), &field(2, raw)].concat()
}

fn text(number: u8, text: &str) -> Vec<u8> {
    field(number, text.as_bytes())
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    field.extend(varint(bytes.len() as u64));
    field.extend(bytes);
    field
}

fn number(field: u8, value: u64) -> Vec<u8> {
    let mut bytes = vec![field << 3];
    bytes.extend(varint(value));
    bytes
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Returns a gzip file whose blocks are stored, not compressed.
fn gzip(data: &[u8]) -> Vec<u8> {
    let mut zipped = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let blocks = data.len().div_ceil(BLOCK_MAX_BYTES).max(1);
    for (at, block) in
        (0..blocks).map(|at| (at, &data[at * BLOCK_MAX_BYTES..data.len().min((at + 1) * BLOCK_MAX_BYTES)]))
    {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        zipped.push(u8::from(at + 1 == blocks));
        zipped.extend(length.to_le_bytes());
        zipped.extend((!length).to_le_bytes());
        zipped.extend(block);
    }
    zipped.extend(crc32(data).to_le_bytes());
    zipped.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes());
    zipped
}

fn crc32(data: &[u8]) -> u32 {
    !data.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_gzip() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let zipped = gzip(b"abc");
        assert_eq!(&zipped[10..18], [1, 3, 0, 0xfc, 0xff, b'a', b'b', b'c']);
    }

    /// The decoders of the graph service accept an answer without a defect, in both encodings.
    #[test]
    fn right_answers_are_read() {
        use kube_api::metadata::{Encoding, Event, event, page};
        let asked = Asked {
            form: Form::List,
            group: "g.lies.test".to_owned(),
            namespace: "n".to_owned(),
            name: "o".to_owned(),
            uid: "u".to_owned(),
            position: "12".to_owned(),
            below: "3".to_owned(),
        };
        let (_, list) = said(Wrong { items: Items::OtherUid, ..Wrong::NONE }, &asked);
        let (api_version, kind) = type_of(Kind::Right, Form::List, &list, "g.lies.test");
        for (encoding, bytes) in [
            (Encoding::Json, json_text(&list, &api_version, &kind).into_bytes()),
            (Encoding::Protobuf, protobuf(&list, &api_version, &kind)),
        ] {
            let page = page(encoding, &bytes).expect("a list");
            assert_eq!((page.resource_version.as_str(), page.items.count()), ("12", 1));
        }
        let (_, events) = said(Wrong::NONE, &Asked { form: Form::Events, ..asked });
        let (api_version, kind) = type_of(Kind::Right, Form::Events, &events, "g.lies.test");
        let line = json_text(&events, &api_version, &kind);
        assert!(matches!(event(Encoding::Json, line.as_bytes()), Ok(Event::Deleted(_))));
        let frame = protobuf(&events, &api_version, &kind);
        assert!(matches!(event(Encoding::Protobuf, &frame[4..]), Ok(Event::Deleted(_))));
    }
}
