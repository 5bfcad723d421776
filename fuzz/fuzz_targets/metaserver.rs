//! MetaServer: requests of clients and their tokens, and objects and lists of the cloud. Any bytes;
//! what is read is written again.
#![no_main]

use std::sync::Arc;

use edged::model::metaserver::{Call, Form, MetaServerSettings, Reply, Source};
use edged::wire::http1::call::call;
use edged::wire::jwt;
use edged::wire::metaserver::{item, reply, request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let settings = MetaServerSettings { writes: true, keadm_ctl: true, ..Default::default() };
    if let Ok(Some((call, _))) = call(data, 1 << 16)
        && let Ok(request::Asked::Call(read)) = request::read(&call, &settings)
    {
        let scope = match read {
            Call::List { scope, .. } => Some(scope),
            Call::Watch(watch) => Some(watch.scope),
            _ => None,
        };
        assert!(scope.is_none_or(|scope| settings.find(&scope.gvr).is_some()));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = jwt::read(text);
    let _ = item::page(text);
    let Some(object) = item::read(text, None) else { return };
    let again = item::read(&object.text, None).expect("what was written is read");
    assert_eq!(again, object);
    for form in [Form::Whole, Form::Table] {
        let (item, source) = (Arc::new(object.clone()), Source::Store);
        for mut piece in reply::pieces(Reply::Object { item, form, source }) {
            let mut bytes = Vec::new();
            while !piece.is_empty() && piece.write(Some(0), &mut bytes) {}
        }
    }
});
