"""A plugin whose library is missing in the rudest way: it fails at import."""

import a_library_that_nobody_has as library  # type: ignore[import-not-found]

plugin = library.make_plugin()
