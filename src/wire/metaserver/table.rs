//! meta.k8s.io/v1 `Table`: objects as a client prints them, with name and age.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::model::application::Item;
use crate::model::time::Timestamp;

/// The begin of a table, up to its first row.
pub(super) fn head(version: u64) -> String {
    format!(
        "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":\
         {{\"resourceVersion\":\"{version}\"}},\"columnDefinitions\":[{COLUMNS}],\"rows\":["
    )
}

/// Its end.
pub(super) const TAIL: &str = "]}";

const COLUMNS: &str = "{\"name\":\"Name\",\"type\":\"string\",\"format\":\"name\",\
                       \"description\":\"\",\"priority\":0},{\"name\":\"Age\",\"type\":\"string\",\
                       \"format\":\"\",\"description\":\"\",\"priority\":0}";

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

/// A row. `now_s`: seconds since 1970; `None`: not known.
pub(super) fn row(item: &Item, now_s: Option<i64>) -> String {
    let created = Timestamp::parse(&item.created).map(|at| at.0);
    let age = now_s.zip(created).map_or("<unknown>".to_owned(), |(now, then)| age(now - then));
    let metadata = serde_json::from_str::<Object<'_>>(&item.text);
    let metadata = metadata.map_or("{}", |object| object.metadata.get());
    let name = serde_json::Value::from(&*item.name);
    format!(
        "{{\"cells\":[{name},\"{age}\"],\"object\":{{\"kind\":\"PartialObjectMetadata\",\
         \"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{metadata}}}}}"
    )
}

/// `12s`, `5m`, `3h`, `40d`
fn age(seconds: i64) -> String {
    match seconds {
        ..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let of = [(-5, "0s"), (119, "119s"), (120, "2m"), (7_199, "119m"), (7_200, "2h")];
        for (seconds, want) in of {
            assert_eq!(age(seconds), want);
        }
        assert_eq!(age(172_800), "2d");
    }
}
