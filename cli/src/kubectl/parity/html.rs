//! The report as one page, which asks for no other file and has no script.

use super::report::{
    NOTHING_YET, Report, classes, collections, facts, grouped_noun, headlines, is_empty, meaning, minute,
    outcome_words, parts, sides,
};
use crate::counted::grouped;
use crate::kubectl::decisions::record::class_word;
use crate::kubectl::naming::{listing, shown};
use crate::kubectl::tree::table::standing;
use proto::decision::v1beta1::DecisionEvent;
use proto::decision::v1beta1::disagreement::Class;
use proto::graph::v1beta1::Edge;
use proto::r#type::v1beta1::ObjectRef;
use proto::r#type::v1beta1::evidence::Source;
use runtime::visible;

const HEAD: &str = concat!(
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
    "<title>Ownergraph: two collectors compared</title>\n<style>\n",
    include_str!("style.css"),
    "</style>\n</head>\n<body>\n<main>\n",
);
/// Length of the bar of outcomes, and the shortest part that is still visible.
const BAR: u128 = 1000;
const PART_MIN: u128 = 8;

/// A page in the making. Markup is a constant of this program, so text of a cluster cannot become markup.
struct Page(String);

impl Page {
    fn markup(&mut self, markup: &'static str) -> &mut Page {
        self.0.push_str(markup);
        self
    }

    /// Adds text to an element or to the value of an attribute in double quotes.
    fn text(&mut self, text: &str) -> &mut Page {
        for character in visible::line(text).chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                other => self.0.push(other),
            }
        }
        self
    }

    fn table<const N: usize>(&mut self, heads: [&'static str; N], rows: &[[String; N]]) {
        self.markup("<div class=\"wide\"><table>\n<tr>");
        for head in heads {
            self.markup("<th scope=\"col\">").markup(head).markup("</th>");
        }
        self.markup("</tr>\n");
        for row in rows {
            self.markup("<tr>");
            for cell in row {
                self.markup("<td>").text(if cell.is_empty() { "-" } else { cell }).markup("</td>");
            }
            self.markup("</tr>\n");
        }
        self.markup("</table></div>\n");
    }

    /// Terms and their texts, without those that are empty.
    fn list(&mut self, rows: &[(&'static str, String)]) {
        self.markup("<dl>\n");
        for (name, text) in rows.iter().filter(|(_, text)| !text.is_empty()) {
            self.markup("<dt>").markup(name).markup("</dt><dd>").text(text).markup("</dd>\n");
        }
        self.markup("</dl>\n");
    }

    /// The shares of all outcomes as a bar, with a legend.
    fn bar(&mut self, parts: &[(&'static str, &'static str, u64)]) {
        let total: u128 = parts.iter().map(|(.., count)| u128::from(*count)).sum();
        let wide = |count: u64| match count {
            0 => 0,
            _ => (u128::from(count) * BAR / total.max(1)).max(PART_MIN),
        };
        let length: u128 = parts.iter().map(|(.., count)| wide(*count)).sum();
        self.markup(
            "<svg role=\"img\" aria-label=\"Shares of the outcomes\" preserveAspectRatio=\"none\" viewBox=\"0 0 ",
        );
        self.text(&length.max(1).to_string()).markup(" 10\">\n");
        let mut at = 0;
        for (_, class, count) in parts.iter().filter(|(.., count)| *count > 0) {
            self.markup("<rect class=\"").markup(class).markup("\" y=\"0\" height=\"10\" x=\"").text(&at.to_string());
            self.markup("\" width=\"").text(&wide(*count).to_string()).markup("\"/>\n");
            at += wide(*count);
        }
        self.markup("</svg>\n<ul class=\"legend\">\n");
        // The legend of an ordinary report has no line about classes of another version.
        for (word, class, count) in parts.iter().filter(|(_, class, count)| *class != "foreign" || *count > 0) {
            self.markup("<li><i class=\"").markup(class).markup("\"></i>").text(&grouped(*count));
            self.markup(" ").markup(word).markup("</li>\n");
        }
        self.markup("</ul>\n");
    }

    fn disagreement(&mut self, event: &DecisionEvent) {
        let found = event.disagreement.clone().unwrap_or_default();
        let at = event.event_time.as_ref().map(ToString::to_string).unwrap_or_default();
        let [ours, theirs] = sides(event);
        self.markup("<details>\n<summary>");
        self.markup(if found.class() == Class::Unknown { "<b class=\"unknown\">" } else { "<b>" });
        self.text(&class_word(found.class())).markup("</b> ");
        self.text(&event.target.as_ref().map(shown).unwrap_or_default()).markup(" <span class=\"quiet\">ours: ");
        self.markup(ours).markup(", theirs: ").markup(theirs).markup(", ").text(&minute(event.event_time));
        self.markup("</span></summary>\n<div>\n");
        let target = event.target.clone().unwrap_or_default();
        self.list(&[
            ("number", found.number.to_string()),
            ("time", at),
            ("outcome", outcome_words(found.outcome()).to_owned()),
            ("class", meaning(found.class()).to_owned()),
            ("object", identity(&target)),
            ("uid", target.uid),
            ("version", event.watch_resource_version.clone()),
            ("user", found.user),
            ("audit id", found.audit_id),
            ("references", references(event)),
        ]);
        if !event.owners.is_empty() {
            let rows: Vec<[String; 5]> = event.owners.iter().map(evidence).collect();
            self.table(["OWNER", "UID", "REFERENCE", "STANDING", "PROOF"], &rows);
        }
        self.markup("</div>\n</details>\n");
    }
}

/// `apps/v1 Deployment shop/web`.
fn identity(object: &ObjectRef) -> String {
    let slash = if object.group.is_empty() { "" } else { "/" };
    format!("{}{slash}{} {}", object.group, object.version, shown(object)).trim_start().to_owned()
}

/// The number of references, if the event does not have all.
fn references(event: &DecisionEvent) -> String {
    match event.owner_count > event.owners.len() as u64 {
        true => format!("the first {} of {}", event.owners.len(), grouped(event.owner_count)),
        false => String::new(),
    }
}

/// A reference with what is known about its owner.
fn evidence(edge: &Edge) -> [String; 5] {
    let reference = edge.reference.clone().unwrap_or_default();
    let flags = [("controller", reference.controller()), ("blocking", reference.block_owner_deletion())];
    let flags: Vec<&str> = flags.into_iter().filter(|(_, is_set)| *is_set).map(|(word, _)| word).collect();
    let owner = edge.owner.as_ref().map(identity).unwrap_or_default();
    let proof = edge.evidence.clone().unwrap_or_default();
    let source = match proof.source() {
        Source::Unspecified => "",
        Source::Watch => "a list or watch",
        Source::LiveRead => "a read of an executor",
        Source::Inferred => "only references",
        Source::List => "a consistent list by name",
        Source::TypeEmptied => "the last status of its definition",
        Source::ReadTwice => "reads",
    };
    let of = proof.group_resource.map(|of| format!(" of {}", listing(&[of]))).unwrap_or_default();
    let version = match proof.resource_version.as_str() {
        "" => String::new(),
        version => format!(" at version {version}"),
    };
    [
        owner,
        reference.uid,
        format!("{} {}", reference.api_version, flags.join(", ")).trim_end().to_owned(),
        standing(edge.standing()).to_owned(),
        format!("{source}{of}{version}"),
    ]
}

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let numbers = &report.numbers;
    let meta = numbers.meta.clone().unwrap_or_default();
    let mut page = Page(HEAD.to_owned());
    let written = minute(Some(prost_types::Timestamp { seconds: report.now, nanos: 0 }));
    page.markup("<h1>Two collectors compared</h1>\n<p class=\"quiet\">Counted since ").text(&minute(numbers.since));
    page.markup(", written at ").text(&written).markup(", cluster ").text(&meta.cluster_uid);
    page.markup(", replica ").text(&meta.replica).markup("</p>\n");
    if is_empty(numbers) {
        page.markup("<p>").text(NOTHING_YET).markup("</p>\n");
    }
    page.markup("<div class=\"numbers\">\n");
    for headline in headlines(numbers) {
        page.markup(match headline.is_good {
            Some(true) => "<div class=\"number good\">",
            Some(false) => "<div class=\"number bad\">",
            None => "<div class=\"number\">",
        });
        page.markup("<strong>").text(&headline.value).markup("</strong>").markup(headline.word);
        page.markup("<p>").text(&headline.meaning).markup("</p></div>\n");
    }
    page.markup("</div>\n<h2>Outcomes</h2>\n");
    page.bar(&parts(numbers));
    page.markup("<h2>What is counted</h2>\n");
    page.list(&facts(report));
    if !numbers.classes.is_empty() {
        page.markup("<h2>Disagreements by class</h2>\n");
        page.table(["CLASS", "OURS ONLY", "THEIRS ONLY", "MEANING"], &classes(numbers));
    }
    if !numbers.collections.is_empty() {
        page.markup("<h2>Since the term began, by collection</h2>\n");
        let heads = ["COLLECTION", "AGREED", "OURS ONLY", "THEIRS ONLY", "UNKNOWN", "UNATTRIBUTED"];
        page.table(heads, &collections(numbers));
    }
    page.markup("<h2>Disagreements</h2>\n<p class=\"quiet\">");
    page.text(&grouped_noun(report.disagreements.len() as u64, "disagreement"));
    if !report.narrowed.is_empty() {
        page.markup(" ").text(&report.narrowed).markup("; the numbers above are those of the whole cluster");
    }
    page.markup(". The leader keeps the last 1,000 of class unknown, and the last 1,000 of all others.</p>\n");
    report.disagreements.iter().for_each(|event| page.disagreement(event));
    page.markup("</main>\n</body>\n</html>\n");
    page.0
}
