//! The report in words, for text and page.

use crate::counted::{counted, grouped};
use crate::kubectl::decisions::record::class_word;
use crate::kubectl::flags::{ACTIONS, word};
use crate::kubectl::naming::{listing, shown};
use crate::kubectl::tree::table::standing;
use crate::name::command;
use proto::decision::v1beta1::disagreement::{Class, Outcome};
use proto::decision::v1beta1::get_parity_response::CollectionCount;
use proto::decision::v1beta1::{DecisionEvent, GetParityResponse};
use proto::graph::v1beta1::Edge;
use proto::r#type::v1beta1::GroupResource;
use std::cmp::Reverse;

/// The advice as long as there is nothing to show.
pub(super) const NOTHING_YET: &str = "nothing has been compared yet: delete an object that owns another one, and ask again when the other collector has deleted the dependent; docs/tasks/observe.md has the commands";

/// An answer of the leader.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    pub(super) numbers: GetParityResponse,
    /// The newest first.
    pub(super) disagreements: Vec<DecisionEvent>,
    /// The conditions of the list of disagreements. Empty if the list has all.
    pub(super) narrowed: String,
    /// The flags of this call for a printed command, each with a space before it.
    pub(super) flags: String,
    /// Seconds of the Unix epoch.
    pub(super) now: i64,
}

/// One of the three numbers that matter.
#[derive(Clone, Debug)]
pub(super) struct Headline {
    pub(super) value: String,
    pub(super) word: &'static str,
    pub(super) meaning: String,
    /// `None` if a person has to judge it.
    pub(super) is_good: Option<bool>,
}

/// The disagreements that nothing explains.
pub(super) fn unknown(numbers: &GetParityResponse) -> u64 {
    disagreed(numbers, |class| class == Class::Unknown)
}

/// Whether a person has to look at disagreements before Ownergraph takes over: nothing explains them, or the other
/// collector left the objects long ago.
pub(super) fn needs_a_look(numbers: &GetParityResponse) -> bool {
    disagreed(numbers, |class| matches!(class, Class::Unknown | Class::Earlier)) > 0
}

/// The disagreements of some classes.
pub(super) fn disagreed(numbers: &GetParityResponse, wanted: impl Fn(Class) -> bool) -> u64 {
    let counts = numbers.classes.iter().filter(|count| wanted(count.class()));
    counts.map(|count| count.ours_only.saturating_add(count.theirs_only)).fold(0, u64::saturating_add)
}

/// The unknown disagreements of earlier leaders. The numbers have them, and those by collection and the list do not.
fn unknown_earlier(numbers: &GetParityResponse) -> u64 {
    let of_term = numbers.collections.iter().map(|of| of.unknown).fold(0, u64::saturating_add);
    unknown(numbers).saturating_sub(of_term)
}

/// Whether nothing has been compared yet.
pub(super) fn is_empty(numbers: &GetParityResponse) -> bool {
    let GetParityResponse { comparable, unattributed, withdrawn, not_compared, .. } = numbers;
    numbers.classes.is_empty()
        && [comparable, unattributed, withdrawn, not_compared].into_iter().all(|count| *count == 0)
}

/// The agreed share in percent, rounded down: a report with a disagreement never says 100 %.
fn share(numbers: &GetParityResponse) -> Option<String> {
    let both = u128::from(numbers.agreed) + u128::from(numbers.theirs_first);
    let share = (both * 10_000).checked_div(u128::from(numbers.comparable))?;
    Some(format!("{}.{:02} %", share / 100, share % 100))
}

/// `128 ms`, `2.0 s`, `65 s`; a dash for zero.
fn delay(of: Option<prost_types::Duration>) -> String {
    let millis = of.map_or(0, |of| of.seconds.saturating_mul(1000).saturating_add(i64::from(of.nanos) / 1_000_000));
    match millis {
        ..=0 => "-".to_owned(),
        1..1000 => format!("{millis} ms"),
        1000..10_000 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        _ => format!("{} s", millis / 1000),
    }
}

/// `2026-11-26 14:02 UTC`.
pub(super) fn minute(at: Option<prost_types::Timestamp>) -> String {
    let text = at.unwrap_or_default().to_string();
    format!("{} UTC", text.get(..16).unwrap_or(&text).replace('T', " "))
}

pub(super) fn headlines(numbers: &GetParityResponse) -> [Headline; 3] {
    let unknown = unknown(numbers);
    let both = numbers.agreed.saturating_add(numbers.theirs_first);
    let agreed = match share(numbers) {
        Some(_) => format!("{} of {} that both could decide", grouped(both), grouped(numbers.comparable)),
        None => "nothing that both could decide".to_owned(),
    };
    [
        Headline {
            value: share(numbers).unwrap_or_else(|| "-".to_owned()),
            word: "agreed",
            meaning: agreed,
            is_good: (both == numbers.comparable && both > 0).then_some(true),
        },
        Headline {
            value: grouped(unknown),
            word: "unknown",
            meaning: match unknown {
                0 => "each disagreement has an explanation".to_owned(),
                _ => "nothing explains them: one of the two collectors is wrong".to_owned(),
            },
            is_good: Some(unknown == 0),
        },
        Headline {
            value: delay(numbers.delay_p50),
            word: "delay",
            meaning: format!("half of the agreed decisions; 99 % within {}", delay(numbers.delay_p99)),
            is_good: None,
        },
    ]
}

/// The line of `status`.
pub(in crate::kubectl) fn summary(numbers: &GetParityResponse) -> String {
    let since = minute(numbers.since);
    match share(numbers) {
        Some(share) => format!("{share} agreed, {} unknown, since {since}", grouped(unknown(numbers))),
        None => format!("nothing compared yet, since {since}"),
    }
}

/// The other numbers: what is counted, and what is not.
pub(super) fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let numbers = &report.numbers;
    let wait = delay(numbers.wait);
    let attributed = match (numbers.audited, numbers.without_request) {
        (true, 0) => "by the audit log, which names the users of changes".to_owned(),
        (true, without) => format!(
            "by the audit log, and {} by facts, because the log has no request for them",
            grouped_noun(without, "change")
        ),
        (false, _) => "by facts: no audit log".to_owned(),
    };
    let earlier = disagreed(numbers, |class| class == Class::Earlier);
    let not_listed = unknown_earlier(numbers);
    let open = format!(
        "{} for the other collector, each up to {wait}; {} for facts",
        waits(numbers.open, "decision"),
        waits(numbers.unsettled, "change")
    );
    let rows = [
        ("since", minute(numbers.since), true),
        ("attributed", attributed, true),
        (
            "earlier",
            format!(
                "{} about objects that the other collector left before: look at each before you take over",
                grouped_noun(earlier, "decision")
            ),
            earlier > 0,
        ),
        (
            "not listed",
            format!(
                "{} of earlier leaders: {} decisions -A --oldest --verdict disagreed",
                grouped_noun(not_listed, "unknown disagreement"),
                command()
            ),
            not_listed > 0,
        ),
        ("open", open, true),
        (
            "theirs first",
            format!("{} of the agreed ones: the other collector was first", grouped(numbers.theirs_first)),
            numbers.theirs_first > 0,
        ),
        (
            "late",
            format!("{} of the agreed ones: the other collector followed after the wait", grouped(numbers.late)),
            numbers.late > 0,
        ),
        (
            "unattributed",
            format!("{}, which a person or a controller made", grouped_noun(numbers.unattributed, "change")),
            !is_empty(numbers),
        ),
        (
            "withdrawn",
            format!(
                "{}, whose facts changed before the other collector followed",
                grouped_noun(numbers.withdrawn, "decision")
            ),
            !is_empty(numbers),
        ),
        (
            "not compared",
            format!(
                "{}, because too many wait for the other collector",
                grouped_noun(numbers.not_compared, "decision")
            ),
            numbers.not_compared > 0,
        ),
    ];
    rows.into_iter().filter(|(.., is_shown)| *is_shown).map(|(name, text, _)| (name, text)).collect()
}

/// `1 decision waits`, `2 decisions wait`.
fn waits(count: u64, noun: &str) -> String {
    format!("{} {}", grouped_noun(count, noun), if count == 1 { "waits" } else { "wait" })
}

/// The parts of all outcomes, each with its word and its name in the style sheet.
pub(super) fn parts(numbers: &GetParityResponse) -> [(&'static str, &'static str, u64); 7] {
    let is_close = |class| matches!(class, Class::Timing | Class::Refused);
    // A newer service may know further classes. What they mean is not known here.
    let is_foreign = |class| class == Class::Unspecified;
    let is_intended = |class| !is_close(class) && !is_foreign(class) && class != Class::Unknown;
    [
        ("agreed", "agreed", numbers.agreed),
        ("agreed, and theirs first", "first", numbers.theirs_first),
        ("intended differences", "intended", disagreed(numbers, is_intended)),
        ("timing and refusals", "close", disagreed(numbers, is_close)),
        ("unknown", "unknown", unknown(numbers)),
        ("of a class that this version does not know", "foreign", disagreed(numbers, is_foreign)),
        ("unattributed", "other", numbers.unattributed),
    ]
}

pub(super) fn outcome_words(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Unspecified => "an outcome that this version of the program does not know",
        Outcome::OursOnly => "ours only: decided here, and the other collector did not follow",
        Outcome::TheirsOnly => "theirs only: the other collector did it, and it was not decided here",
    }
}

/// Returns the explanation of a disagreement, as one sentence.
pub(super) fn meaning(class: Class) -> &'static str {
    match class {
        Class::Unspecified => "a class that this version of the program does not know",
        Class::Unknown => "nothing explains it: one of the two collectors is wrong",
        Class::Timing => "the collectors saw the facts at different times, or the facts did not become known",
        Class::Refused => "the API server refused the request of the other collector",
        Class::Held => "intended: a guard, an annotation or an invalid reference holds the object here",
        Class::Unproven => "intended: the other collector believes any 404 of an owner, this one wants a proof",
        Class::Orphaned => "intended: an owner orphans the object, which stays here and only loses references",
        Class::DroppedReference => {
            "intended: a dangling reference is removed here although another reference is unverified"
        }
        Class::Cycle => "intended: only blocking references inside a real cycle are unblocked here",
        Class::OtherVersion => "intended: the other collector may not resolve the version in the reference",
        Class::OtherCoordinates => {
            "intended: the reference has the uid of an owner under another name, kind or namespace"
        }
        Class::OwnChange => "intended: the object changed after the end of its owners",
        Class::TooManyReferences => "intended: the object has more than 64 references, and the comparison reads 64",
        Class::Earlier => "intended: neither the object nor an owner has changed since the comparison began",
    }
}

/// The numbers of the classes: word, ours only, theirs only, meaning.
pub(super) fn classes(numbers: &GetParityResponse) -> Vec<[String; 4]> {
    let row = |count: &proto::decision::v1beta1::get_parity_response::ClassCount| {
        let class = count.class();
        [class_word(class), grouped(count.ours_only), grouped(count.theirs_only), meaning(class).to_owned()]
    };
    numbers.classes.iter().map(row).collect()
}

/// The numbers of the collections, those with unknown disagreements first: name, agreed, ours only, theirs only,
/// unknown, unattributed.
pub(super) fn collections(numbers: &GetParityResponse) -> Vec<[String; 6]> {
    let mut all: Vec<&CollectionCount> = numbers.collections.iter().collect();
    all.sort_by_key(|of| Reverse((of.unknown, of.ours_only.saturating_add(of.theirs_only), of.agreed)));
    let name = |of: GroupResource| match of.resource.as_str() {
        "" => "(all others)".to_owned(),
        _ => listing(&[of]),
    };
    let row = |of: &&CollectionCount| {
        let [agreed, ours, theirs, unknown, other] =
            [of.agreed, of.ours_only, of.theirs_only, of.unknown, of.unattributed].map(grouped);
        [name(of.group_resource.clone().unwrap_or_default()), agreed, ours, theirs, unknown, other]
    };
    all.iter().map(row).collect()
}

/// Returns the decision of this collector, and the action of the other one.
pub(super) fn sides(event: &DecisionEvent) -> [&'static str; 2] {
    let found = event.disagreement.clone().unwrap_or_default();
    match found.outcome() {
        Outcome::OursOnly => [word(&ACTIONS, event.kind()), "-"],
        Outcome::TheirsOnly | Outcome::Unspecified => [word(&ACTIONS, found.decided()), word(&ACTIONS, event.kind())],
    }
}

/// `ReplicaSet shop/web (dangling)`.
pub(super) fn owner(edge: &Edge) -> String {
    let owner = edge.owner.as_ref().map(shown).unwrap_or_default();
    format!("{owner} ({})", standing(edge.standing()))
}

/// `2,000 decisions`.
pub(super) fn grouped_noun(count: u64, noun: &str) -> String {
    counted(count, noun).replacen(&count.to_string(), &grouped(count), 1)
}
