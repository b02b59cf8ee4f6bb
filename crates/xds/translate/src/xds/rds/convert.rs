//! Small values in Envoy's form.

use pilotfish_config::StringMatch;
use pilotfish_config::networking::Percent;
use pilotfish_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use pilotfish_proto::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher};
use pilotfish_proto::envoy::r#type::v3::FractionalPercent;
use pilotfish_proto::envoy::r#type::v3::fractional_percent::DenominatorType;

/// A share with a fraction, in millionths; digits below are dropped.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "out of range becomes the nearest bound"
)]
pub(super) fn percent(share: Percent) -> FractionalPercent {
    FractionalPercent {
        numerator: (share.value * 10_000.0) as u32,
        denominator: DenominatorType::Million.into(),
    }
}

/// A share in whole percents.
pub(super) fn whole_percent(share: u32) -> FractionalPercent {
    FractionalPercent { numerator: share, denominator: DenominatorType::Hundred.into() }
}

/// A match on a text; `None` where none is set.
pub(super) fn string_matcher(text: &StringMatch) -> Option<StringMatcher> {
    let pattern = match text {
        StringMatch::Unset => return None,
        StringMatch::Exact(text) => MatchPattern::Exact(text.clone()),
        StringMatch::Prefix(text) => MatchPattern::Prefix(text.clone()),
        StringMatch::Regex(regex) => {
            MatchPattern::SafeRegex(RegexMatcher { regex: regex.clone(), ..Default::default() })
        }
    };
    Some(StringMatcher { match_pattern: Some(pattern), ..Default::default() })
}
