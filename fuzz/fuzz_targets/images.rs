//! Images as files and credentials of registries: any bytes as a tar head, as pax records, as each
//! JSON text, as a request's target, as a name, and as Docker's configuration. What is a name stays
//! one when it is written out.
#![no_main]

use edged::model::image::ImageName;
use edged::model::keyring::{Form, Keyring};
use edged::wire::oci::json;
use edged::wire::oci::reference::Target;
use edged::wire::tar;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(block) = data.first_chunk::<{ tar::BLOCK }>()
        && let Ok(tar::Head::Entry(entry)) = tar::head(block)
    {
        let end = tar::next(tar::BLOCK as u64, entry.size);
        assert!(end.is_none_or(|end| end >= entry.size));
    }
    let _ = tar::more(data);
    let _ = (json::index(data), json::saved(data), json::diff_ids(data), json::media_type(data));
    let mut keyring = Keyring::default();
    let forms = [Form::Json, Form::Cfg].map(|form| keyring.add(data, form).is_ok());
    let Ok(text) = core::str::from_utf8(data) else { return };
    let _ = Target::parse(text, text);
    let found = keyring.find(text).count();
    assert!(found == 0 || forms.contains(&true));
    if let Ok(name) = ImageName::parse(text) {
        let whole = name.repository();
        let again = ImageName::parse(&whole).expect("a repository is a name");
        assert_eq!(again.repository(), whole);
    }
});
