//! Fuzz entry points for texts and tokens of callers.

use super::decisions::filter::Filter as DecisionsFilter;
use super::decisions::looked::Looked;
use super::decisions::place;
use super::filter::{Filter, Sieve};
use super::freshness::token::Token as Freshness;
use super::graph::watch::kept::Token as Watched;
use super::pages;
use engine::evidence::Presence;
use engine::object::{Facts, ObjectRef, OwnerReference, ResourceVersion, Uid};
use engine::view::NodeView;
use prost::Message as _;
use proto::decision::v1beta1::{DecisionEvent, DecisionFilter};
use proto::graph::v1beta1::ListDependentsRequest;
use proto::r#type::v1beta1::ObjectFilter;

/// Reads the bytes as an expression, and as the filters of a request.
pub(crate) fn filters(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let filter = ObjectFilter { cel: text.to_owned(), ..ObjectFilter::default() };
        sieve(std::slice::from_ref(&filter), &[]);
        let of_events = DecisionFilter { cel: text.to_owned(), ..DecisionFilter::default() };
        match DecisionsFilter::of("include", &[of_events]) {
            Ok(Some(read)) => drop(read.admits(&Looked::of(DecisionEvent::default()))),
            Ok(None) => {}
            Err(refused) => assert!(!refused.message().is_empty(), "{refused:?}"),
        }
    }
    if let Ok(request) = ListDependentsRequest::decode(bytes) {
        sieve(&request.include, &request.exclude);
    }
}

fn sieve(include: &[ObjectFilter], exclude: &[ObjectFilter]) {
    match (Sieve::of(include, exclude), Filter::of_names("include", include)) {
        (Ok(sieve), names) => {
            sieve.admits(&node());
            if let Ok(Some(names)) = names {
                let looked = Looked::of(DecisionEvent::default());
                names.admits_name(&proto::r#type::v1beta1::ObjectRef::default(), || looked.activation());
            }
        }
        (Err(refused), _) => assert!(!refused.message().is_empty(), "{refused:?}"),
    }
}

/// An object with all fields set.
fn node() -> NodeView {
    let uid = |text| Uid::parse(text).expect("the text is not empty");
    let owner = OwnerReference {
        api_version: "apps/v1".into(),
        kind: "ReplicaSet".into(),
        name: "web".into(),
        uid: uid("11111111-1111-1111-1111-111111111111"),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    NodeView {
        object: ObjectRef {
            group: "".into(),
            version: "v1".into(),
            resource: "pods".into(),
            kind: "Pod".into(),
            namespace: "default".into(),
            name: "web-1".into(),
            uid: uid("22222222-2222-2222-2222-222222222222"),
        },
        presence: Presence::Observed { resource_version: ResourceVersion::parse("17") },
        facts: Facts { owners: Box::new([owner]), finalizers: Box::new(["a.example/b".into()]), ..Facts::default() },
        owners: 0,
        finalizers: 0,
        dependents: 3,
        blocking_dependents: 1,
        undecided: None,
        collecting: None,
    }
}

/// Reads the bytes as each kind of token. A valid token must survive a round trip.
pub(crate) fn tokens(bytes: &[u8]) {
    if let Some(token) = Freshness::read(bytes) {
        assert_eq!(Freshness::read(&token.write()).as_ref(), Some(&token), "a token of freshness");
        token.bounds().for_each(drop);
    }
    if let Some(token) = Watched::read(bytes) {
        assert_eq!(token.write(), bytes, "a token of a stream");
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _page = pages::parse(text);
        let _place = place::parse(text);
    }
}
