//! Enums with a word for each variant.

/// Declares an enum with a list of its variants, and with the word of each variant for logs, labels and answers.
macro_rules! words {
    ($(#[$of:meta])* pub enum $name:ident { $($(#[$about:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$of])*
        pub enum $name {
            $($(#[$about])* $variant,)+
        }

        impl $name {
            /// All variants, in the order of their declaration.
            pub const ALL: [$name; [$($word),+].len()] = [$($name::$variant),+];

            /// The word for logs, labels and answers.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }
        }
    };
}

pub(crate) use words;
