"""Files with several plans: the record of them in the manifest, and the choice by shape."""
