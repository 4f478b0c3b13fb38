//! Wrong answers as data: the variants of each part of an answer, and their combinations.

use std::fmt;

/// An answer about an owner. With the first variant of every part, it is the API server's answer about an owner that is
/// gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub status: Status,
    pub media: Media,
    pub kind: Kind,
    pub version: Version,
    pub items: Items,
    pub coding: Coding,
    pub ending: Ending,
}

/// The form of the answer that the wrong one replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A list, of a collection or of one name.
    List,
    /// One object.
    Object,
    /// The initial events of a watch, with the bookmark that ends them.
    Initial,
    /// The events of a watch.
    Events,
    /// The resources of one version of a group.
    Resources,
}

/// The request, and the positions of the store.
#[derive(Clone, Debug)]
pub struct Asked {
    pub form: Form,
    pub group: String,
    pub namespace: String,
    /// The owner's name and uid.
    pub name: String,
    pub uid: String,
    /// The current position of the store, and a position before the creation of the owner.
    pub position: String,
    pub below: String,
}

macro_rules! variants {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// All variants. The right one comes first.
            pub const ALL: &[$name] = &[$($name::$variant),+];
        }
    };
}

variants! {
    /// The HTTP status, and the body of an error.
    Status {
        /// 200. For a GET of one object, a 404 that names the object.
        Right,
        Moved301, Found302, Unauthorized401, Forbidden403, Text404, Html404, Empty404, OtherObject404, OtherGroup404, OtherKind404,
        /// A 404 that names the object, also in answer to a list.
        Exact404,
        Gone410, TooMany429, Internal500, Unavailable503,
        /// The answer of a second API server, whose data is an older copy.
        OtherStore,
    }
}

variants! {
    /// The media type and the encoding of the body.
    Media {
        Json,
        /// Protobuf under its own media type, which is no defect.
        Protobuf,
        JsonUnderProtobuf, ProtobufUnderJson, JsonUnderHtml, JsonUnderNothing,
    }
}

variants! {
    /// The `apiVersion` and `kind` of the answer.
    Kind { Right, OtherGroup, OtherKind, BareList, Status, Table }
}

variants! {
    /// The resourceVersion of a list, or of the object in a watch event.
    Version { Current, Zero, One, Below, Text, Empty, Future }
}

variants! {
    /// The item of a list in place of the owner, or the object of a watch event.
    Items {
        /// The list is empty. The event deletes the owner.
        Right,
        /// Another object.
        Foreign,
        /// The owner's uid under another name.
        Renamed,
        /// The owner's name with another uid, as after a replacement of the owner.
        OtherUid,
        /// A page that is not the last, initial events without their bookmark, or an event about an object without a
        /// uid.
        Cut,
        /// A list that counts more objects than it shows, or a bookmark in place of an event.
        Rest,
    }
}

variants! {
    /// The compression of the body. Our clients ask for none.
    Coding { Identity, Gzip, GzipUndeclared, GzipTwice }
}

variants! {
    /// How the body ends.
    Ending {
        Whole,
        /// The response has half of the body, and looks complete.
        Half,
        /// The connection closes in the middle of the body.
        Closed,
        /// The body is shorter than `Content-Length` says.
        Short,
    }
}

impl Wrong {
    /// The answer without a defect.
    pub const NONE: Wrong = Wrong {
        status: Status::Right,
        media: Media::Json,
        kind: Kind::Right,
        version: Version::Current,
        items: Items::Right,
        coding: Coding::Identity,
        ending: Ending::Whole,
    };

    /// Every answer with one part other than in [`Wrong::NONE`].
    pub fn singles() -> Vec<Wrong> {
        Wrong::NONE.changed(0).into_iter().map(|(_, wrong)| wrong).collect()
    }

    /// Every answer of [`Wrong::singles`], and every position together with a replaced owner and with a bookmark.
    pub fn singles_and_positions() -> Vec<Wrong> {
        let of = |items| Version::ALL[1..].iter().map(move |&version| Wrong { version, items, ..Wrong::NONE });
        Wrong::singles().into_iter().chain(of(Items::OtherUid)).chain(of(Items::Rest)).collect()
    }

    /// Every answer with one part or two parts other than in [`Wrong::NONE`].
    pub fn singles_and_pairs() -> Vec<Wrong> {
        let singles = Wrong::NONE.changed(0);
        let pairs = singles.iter().flat_map(|(part, wrong)| wrong.changed(part + 1)).map(|(_, wrong)| wrong);
        let all = singles.iter().map(|(_, wrong)| *wrong).chain(pairs);
        all.filter(|wrong| wrong.is_distinct()).collect()
    }

    /// Returns this answer with every other variant of one part, and the number of this part. `from` is the number of
    /// the first part to vary.
    fn changed(self, from: usize) -> Vec<(usize, Wrong)> {
        let mut all = Vec::new();
        let mut add = |part: usize, wrong: Wrong| {
            if part >= from {
                all.push((part, wrong));
            }
        };
        Status::ALL[1..].iter().for_each(|&status| add(0, Wrong { status, ..self }));
        Media::ALL[1..].iter().for_each(|&media| add(1, Wrong { media, ..self }));
        Kind::ALL[1..].iter().for_each(|&kind| add(2, Wrong { kind, ..self }));
        Version::ALL[1..].iter().for_each(|&version| add(3, Wrong { version, ..self }));
        Items::ALL[1..].iter().for_each(|&items| add(4, Wrong { items, ..self }));
        Coding::ALL[1..].iter().for_each(|&coding| add(5, Wrong { coding, ..self }));
        Ending::ALL[1..].iter().for_each(|&ending| add(6, Wrong { ending, ..self }));
        all
    }

    /// Returns whether this combination is an answer of its own. An error varies only in media type, compression and
    /// end, because its body has no position and no items. The answer of the other store does not vary.
    fn is_distinct(&self) -> bool {
        let unchanged = Wrong { status: self.status, ..Wrong::NONE };
        let written = Wrong { media: self.media, coding: self.coding, ending: self.ending, ..unchanged };
        let is_error = self.status != Status::OtherStore;
        self.status == Status::Right || *self == unchanged || (is_error && *self == written)
    }

    /// Returns whether the answer has a position before the known one, or far beyond it. A collector may take this for
    /// another history of the store, and stop.
    pub(super) fn leaps(&self) -> bool {
        matches!(self.version, Version::One | Version::Below | Version::Future) || self.status == Status::OtherStore
    }

    /// Returns whether the answer has no defect in this form. It is then the honest answer about an owner that is gone
    /// or replaced. A collector cannot recognize that the owner exists.
    pub fn is_plausible(&self, form: Form) -> bool {
        let right = |of: &Wrong| {
            let media = if matches!(of.media, Media::Protobuf) { Media::Json } else { of.media };
            let items = if matches!(of.items, Items::OtherUid) { Items::Right } else { of.items };
            Wrong { media, items, ..*of }
        };
        match form {
            Form::List | Form::Initial | Form::Events => right(self) == Wrong::NONE,
            Form::Object => {
                // A 404 has no position, so an older store gives the same answer as the current one.
                let plausible = matches!(self.status, Status::Exact404 | Status::OtherStore);
                let status = if plausible { Status::Right } else { self.status };
                // A `Status` has no position and no items. It names the object in its details.
                let wrong = Wrong { status, version: Version::Current, ..right(self) };
                let items = if matches!(wrong.items, Items::Cut | Items::Rest) { Items::Right } else { wrong.items };
                Wrong { items, ..wrong } == Wrong::NONE
            }
            // Discovery never proves that an object is gone.
            Form::Resources => false,
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.status != Status::Right).then(|| format!("status {:?}", self.status)),
            (self.media != Media::Json).then(|| format!("media {:?}", self.media)),
            (self.kind != Kind::Right).then(|| format!("kind {:?}", self.kind)),
            (self.version != Version::Current).then(|| format!("version {:?}", self.version)),
            (self.items != Items::Right).then(|| format!("items {:?}", self.items)),
            (self.coding != Coding::Identity).then(|| format!("coding {:?}", self.coding)),
            (self.ending != Ending::Whole).then(|| format!("ending {:?}", self.ending)),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { f.write_str("nothing wrong") } else { f.write_str(&parts.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_has_every_variant_alone_and_every_pair_once() {
        let singles = Wrong::singles();
        assert_eq!(singles.len(), 16 + 5 + 5 + 6 + 5 + 3 + 3);
        let all = Wrong::singles_and_pairs();
        for (at, wrong) in all.iter().enumerate() {
            assert!(!all[..at].contains(wrong), "{wrong} twice");
        }
        assert!(singles.iter().all(|single| all.contains(single)));
        assert!(all.contains(&Wrong { kind: Kind::OtherGroup, version: Version::Zero, ..Wrong::NONE }));
    }

    #[test]
    fn only_answers_of_an_honest_server_are_plausible() {
        let plausible = |form| Wrong::singles().into_iter().filter(move |wrong| wrong.is_plausible(form)).count();
        // The two are protobuf and a replaced owner.
        assert_eq!(plausible(Form::List), 2);
        assert_eq!(plausible(Form::Events), 2);
        assert_eq!(plausible(Form::Resources), 0);
        assert!(Wrong { status: Status::Exact404, ..Wrong::NONE }.is_plausible(Form::Object));
        assert!(!Wrong { status: Status::Exact404, ..Wrong::NONE }.is_plausible(Form::List));
        assert!(!Wrong { status: Status::OtherStore, ..Wrong::NONE }.is_plausible(Form::List));
    }
}
