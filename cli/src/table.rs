//! Rows for people.

use proto::admin::v1beta1::Pause;
use proto::convert::PAUSE_PREFIX;
use runtime::visible::line;
use unicode_width::UnicodeWidthStr as _;

/// Between two columns.
const GAP: usize = 2;

/// Pauses, one a line, with a heading.
pub(crate) fn of_pauses(pauses: &[Pause]) -> String {
    let mut rows = vec![["NAME", "SCOPE", "STATE", "HELD", "EXPIRES", "REASON"].map(str::to_owned)];
    rows.extend(pauses.iter().map(|pause| {
        let state = match (pause.expired, pause.effective) {
            (true, _) => "expired",
            (false, true) => "effective",
            (false, false) => "pending",
        };
        let expires = pause.expire_time.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        [
            pause.name.strip_prefix(PAUSE_PREFIX).unwrap_or(&pause.name).to_owned(),
            scope(pause),
            state.to_owned(),
            pause.held_items.to_string(),
            expires,
            if pause.actor.is_empty() { pause.reason.clone() } else { format!("{} ({})", pause.reason, pause.actor) },
        ]
        .map(|cell| line(&cell).into_owned())
    }));
    aligned(&rows)
}

fn scope(pause: &Pause) -> String {
    let targets: Vec<String> = pause
        .scope
        .iter()
        .flat_map(|scope| &scope.targets)
        .map(|target| {
            let resource = |group: &str, resource: &str| match group {
                "" => resource.to_owned(),
                group => format!("{resource}.{group}"),
            };
            let resources: Vec<String> = target.resources.iter().map(|at| resource(&at.group, &at.resource)).collect();
            let what = if resources.is_empty() { "everything".to_owned() } else { resources.join(",") };
            if target.namespaces.is_empty() { what } else { format!("{what} in {}", target.namespaces.join(",")) }
        })
        .collect();
    if targets.is_empty() { "everything".to_owned() } else { targets.join("; ") }
}

fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut cells = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            cells.push_str(cell);
            cells.push_str(&" ".repeat(width + GAP - cell.width()));
        }
        text.push_str(cells.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::admin::v1beta1::Scope;
    use proto::r#type::v1beta1::{GroupResource, ObjectFilter};

    #[test]
    fn pauses_stand_in_columns() {
        let target = ObjectFilter {
            resources: vec![
                GroupResource { group: "apps".to_owned(), resource: "deployments".to_owned() },
                GroupResource { group: String::new(), resource: "pods".to_owned() },
            ],
            namespaces: vec!["shop".to_owned()],
            ..ObjectFilter::default()
        };
        let pauses = [
            Pause { name: "pauses/a".to_owned(), reason: "one\ntwo".to_owned(), effective: true, ..Pause::default() },
            Pause {
                name: "pauses/longer".to_owned(),
                scope: Some(Scope { targets: vec![target] }),
                held_items: 12,
                ..Pause::default()
            },
        ];
        let expected = "\
NAME    SCOPE                          STATE      HELD  EXPIRES  REASON
a       everything                     effective  0     -        one\\ntwo
longer  deployments.apps,pods in shop  pending    12    -
";
        assert_eq!(of_pauses(&pauses), expected);
    }
}
