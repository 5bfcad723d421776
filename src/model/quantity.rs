//! A Kubernetes quantity: `500m`, `64Mi`, `1.5`, `2e3`.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::error::Input;
use super::tree::{Fault, Node, Read, Value, by_tree};

/// A number with a suffix, stored as it was written and in thousandths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    written: Box<str>,
    milli: i64,
}

impl Quantity {
    /// Thousandths, rounded up: CPU in milli-cores.
    pub fn milli(&self) -> i64 {
        self.milli
    }

    /// Whole units, rounded up: bytes, counts.
    pub fn whole(&self) -> i64 {
        self.milli.div_euclid(1000) + i64::from(self.milli.rem_euclid(1000) != 0)
    }

    /// Kubernetes' canonical form: `1024Mi` is `1Gi`.
    pub fn canonical(&self) -> String {
        if self.milli.rem_euclid(1000) == 0 { self.like(self.whole()) } else { self.to_string() }
    }

    /// A whole number in the format of this one: with powers of two or of ten.
    pub fn like(&self, whole: i64) -> String {
        match u64::try_from(whole) {
            Ok(whole) if self.written.ends_with('i') => binary(whole),
            Ok(whole) if !self.written.contains(['e', 'E']) => decimal(whole),
            Ok(_) | Err(_) if whole == self.whole() => self.to_string(),
            Ok(_) | Err(_) => whole.to_string(),
        }
    }
}

/// Kubernetes' form of a number of bytes: the largest suffix without loss. Below 1024 as
/// [`decimal`].
pub fn binary(whole: u64) -> String {
    if whole < 1024 {
        decimal(whole)
    } else {
        shown(whole, 1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi"])
    }
}

/// Kubernetes' form of a count.
pub fn decimal(whole: u64) -> String {
    shown(whole, 1000, ["", "k", "M", "G", "T", "P"])
}

fn shown(mut whole: u64, base: u64, suffixes: [&str; 6]) -> String {
    let mut at = 0;
    while whole > 0 && whole.is_multiple_of(base) && at + 1 < suffixes.len() {
        whole /= base;
        at += 1;
    }
    format!("{whole}{}", suffixes[at])
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

impl FromStr for Quantity {
    type Err = Input;

    fn from_str(text: &str) -> Result<Self, Input> {
        let bad = || Input::quoted(text, "a quantity such as 500m, 0.5, 64Mi or 1e3");
        let end = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-'));
        let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
        let (mantissa, places) = parse_decimal(number).ok_or_else(bad)?;
        let (scale, power) = suffix_of(suffix).ok_or_else(bad)?;
        // Exact in 128 bits: mantissa × scale × 1000 × 10^power ÷ 10^places.
        let exponent = power + 3 - places;
        let product = mantissa.checked_mul(scale).ok_or_else(bad)?;
        let ten = |n: i32| 10_i128.checked_pow(n.unsigned_abs()).ok_or_else(bad);
        let milli = if exponent >= 0 {
            product.checked_mul(ten(exponent)?).ok_or_else(bad)?
        } else {
            let by = ten(exponent)?;
            product.div_euclid(by) + i128::from(product.rem_euclid(by) != 0)
        };
        let milli = i64::try_from(milli)
            .map_err(|_| Input::quoted(text, "a quantity below 9.2e15 in whole units"))?;
        Ok(Self { written: text.into(), milli })
    }
}

/// The digits without the point, and the number of decimals.
fn parse_decimal(text: &str) -> Option<(i128, i32)> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + part.len() == 0 || whole.len() + part.len() > 24 {
        return None;
    }
    let joined = format!("{whole}{part}");
    if !joined.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let value: i128 = joined.parse().ok()?;
    Some((if negative { -value } else { value }, part.len() as i32))
}

/// A factor and a power of ten.
fn suffix_of(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            (1, exponent.parse().ok().filter(|n: &i32| (-18..=18).contains(n))?)
        }
    })
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.written)
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self { written: "0".into(), milli: 0 }
    }
}

impl Read for Quantity {
    /// YAML writes `cpu: 1` as a number, `cpu: "1"` as a string.
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        let written: Result<Self, Input> = match &node.value {
            Value::Null => return Ok(()),
            Value::Text(text) => text.parse(),
            Value::Int(number) => number.to_string().parse(),
            Value::Big(number) => number.to_string().parse(),
            Value::Float(number) => number.to_string().parse(),
            Value::Bool(_) | Value::List(_) | Value::Map(_) => {
                return Err(Fault::unlike(node, "a quantity such as 500m, 0.5, 64Mi or 1e3"));
            }
        };
        *self = written.map_err(|wrong| Fault::bare(wrong.to_string()))?;
        Ok(())
    }

    fn heap_bytes(&self) -> usize {
        self.written.heap_bytes()
    }
}

by_tree!(Quantity);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_in_every_form() {
        for (text, milli) in [
            ("1", 1000),
            ("500m", 500),
            ("0.5", 500),
            (".5", 500),
            ("1.5Ki", 1_536_000),
            ("64Mi", 67_108_864_000),
            ("2e3", 2_000_000),
            ("1E2", 100_000),
            ("1k", 1_000_000),
            ("1n", 1),
            ("-2", -2000),
            ("1E", 1_000_000_000_000_000_000 / 1000 * 1000),
        ] {
            let got = text.parse::<Quantity>().map(|q| q.milli());
            if text == "1E" {
                assert!(got.is_err(), "{text} does not fit in 64 bits of thousandths");
            } else {
                assert_eq!(got, Ok(milli), "{text}");
            }
        }
    }

    #[test]
    fn numbers_are_shown_as_kubernetes_shows_them() {
        for (written, shown) in [
            ("1024Mi", "1Gi"),
            ("1000Mi", "1000Mi"),
            ("0.5Gi", "512Mi"),
            ("2000M", "2G"),
            ("1500", "1500"),
            ("1.5", "1.5"),
            ("1e9", "1e9"),
            ("0", "0"),
        ] {
            let quantity: Quantity = written.parse().expect(written);
            assert_eq!(quantity.canonical(), shown, "{written}");
        }
        let sizes = [1, 1000, 1023, 1024, 104_857_600, 94_371_841].map(binary);
        assert_eq!(sizes, ["1", "1k", "1023", "1Ki", "100Mi", "94371841"]);
    }

    #[test]
    fn what_is_no_quantity_is_named() {
        for text in ["", "m", "1.2.3", "1Mb", "--1", "1e99", "é", "1 Mi", "٣"] {
            let error = text.parse::<Quantity>().expect_err(text);
            assert!(error.to_string().contains(&format!("got {text:?}")), "{error}");
        }
    }

    #[test]
    fn fractions_round_up_to_whole_units() {
        assert_eq!("1500m".parse::<Quantity>().map(|q| q.whole()), Ok(2));
        assert_eq!("-1500m".parse::<Quantity>().map(|q| q.whole()), Ok(-1));
    }
}
