//! Declaration of API messages: every field may be absent, names are written in camelCase, enums in upper
//! case.

/// Declares API messages: structs whose fields are all optional and named in camelCase.
macro_rules! message {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident { $($body:tt)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, serde::Serialize)]
        #[serde(default, rename_all = "camelCase")]
        $vis struct $name { $($body)* }
    )*};
}

/// Declares API enums: written as `UPPER_CASE`, the variant marked `#[default]` stands for an absent field.
macro_rules! enumeration {
    ($($(#[$meta:meta])* pub enum $name:ident { $($body:tt)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Deserialize, serde::Serialize)]
        #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
        pub enum $name { $($body)* }
    )*};
}

/// Ties a type to its kind.
macro_rules! kind {
    ($($type:ty = $kind:ident;)*) => {$(
        impl pilotfish_model::KindSpec for $type {
            const KIND: pilotfish_model::Kind = pilotfish_model::Kind::$kind;
        }
    )*};
}

pub(crate) use {enumeration, kind, message};
