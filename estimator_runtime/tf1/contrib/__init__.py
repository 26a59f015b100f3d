"""`tf.contrib` of TensorFlow 1.15.5: installed once from its wheel, and imported here.

`wheel` fetches the files, `loader` imports them, `views` answers what they import from
TensorFlow, and `facade` of the folder above has `tf.contrib`.
"""
