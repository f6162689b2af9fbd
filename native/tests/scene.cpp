void placeholder_scene();
